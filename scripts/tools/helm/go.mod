module modelgateway/scripts/tools/helm

go 1.26.0

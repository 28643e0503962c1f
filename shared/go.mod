module modelgateway/shared

go 1.26.0

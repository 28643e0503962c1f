module modelgateway/controlplane/adminclient

go 1.26.0

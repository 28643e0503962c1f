module modelgateway/migrations

go 1.26.0

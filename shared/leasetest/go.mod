module modelgateway/shared/leasetest

go 1.26.0

require (
	modelgateway/shared v0.0.0
	pgregory.net/rapid v1.3.0
)

replace modelgateway/shared => ../

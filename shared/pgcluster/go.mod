module modelgateway/shared/pgcluster

go 1.26.0

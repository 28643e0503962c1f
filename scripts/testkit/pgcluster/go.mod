module modelgateway/scripts/testkit/pgcluster

go 1.26.0

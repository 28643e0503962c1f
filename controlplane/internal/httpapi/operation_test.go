package httpapi

import (
	"testing"
	"time"

	"modelgateway/controlplane/api"
)

func TestUnlimitedOperationsExist(t *testing.T) {
	t.Parallel()
	operations, err := readOperations(api.Document)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range unlimited {
		if op, ok := operations[id]; !ok || op.timeLimit(id, time.Second) != 0 {
			t.Errorf("%s does not exist, or has a time limit", id)
		}
	}
}

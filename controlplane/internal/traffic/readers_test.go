package traffic_test

import (
	"errors"
	"testing"

	"modelgateway/controlplane/internal/traffic"
)

func TestReadersAreBoundedInAllAndEach(t *testing.T) {
	t.Parallel()
	r := traffic.NewReaders(5, 2)
	enter := func(reader string, want error) {
		t.Helper()
		if err := r.Enter(reader); !errors.Is(err, want) {
			t.Errorf("%s: got %v; want %v", reader, err, want)
		}
	}
	for range 2 {
		enter("a", nil)
		enter("b", nil)
	}
	enter("a", traffic.ErrTooManyTails)
	enter("c", nil)
	enter("c", traffic.ErrTooManyTails)

	r.Leave("a")
	enter("b", traffic.ErrTooManyTails)
	enter("c", nil)
}

package retry_test

import (
	"errors"
	"testing"

	"modelgateway/shared/platform/retry"
)

func TestIsNewIsFalseForRepeatedErrors(t *testing.T) {
	t.Parallel()
	one, two := errors.New("one"), errors.New("two")
	var f retry.ErrorFilter
	for i, step := range []struct {
		err  error
		want bool
	}{{nil, false}, {one, true}, {one, false}, {errors.New("one"), false}, {two, true}, {one, true}, {nil, false}, {one, true}} {
		if got := f.IsNew(step.err); got != step.want {
			t.Errorf("step %d, %v: got %v; want %v", i, step.err, got, step.want)
		}
	}
}

package fault_test

import (
	"errors"
	"reflect"
	"testing"

	"modelgateway/controlplane/internal/fault"
)

func TestMerge(t *testing.T) {
	t.Parallel()
	other := errors.New("not about the input")
	for _, tt := range []struct {
		name string
		errs []error
		want error
	}{
		{"nothing", []error{nil, nil}, nil},
		{"the first of a path counts", []error{fault.New("a", "1"), nil, fault.List{{"a", "2"}, {"b", "3"}}}, fault.List{{"a", "1"}, {"b", "3"}}},
		{"two of one look", []error{fault.List{{"a", "1"}, {"a", "2"}}}, fault.List{{"a", "1"}, {"a", "2"}}},
		{"another error stands alone", []error{fault.New("a", "1"), other}, other},
	} {
		if got := fault.Merge(tt.errs...); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %v; want %v", tt.name, got, tt.want)
		}
	}
}

package validation_test

import (
	"errors"
	"reflect"
	"testing"

	"modelgateway/controlplane/internal/validation"
)

func TestMergeKeepsTheFirstReportOfEachPath(t *testing.T) {
	t.Parallel()
	other := errors.New("not about the input")
	for _, tt := range []struct {
		name string
		errs []error
		want error
	}{
		{"nothing", []error{nil, nil}, nil},
		{"the first report of a path is kept", []error{validation.New("a", "1"), nil, validation.Errors{{"a", "2"}, {"b", "3"}}}, validation.Errors{{"a", "1"}, {"b", "3"}}},
		{"two reports of one path by one check", []error{validation.Errors{{"a", "1"}, {"a", "2"}}}, validation.Errors{{"a", "1"}, {"a", "2"}}},
		{"an error that is not about the input", []error{validation.New("a", "1"), other}, other},
	} {
		if got := validation.Merge(tt.errs...); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %v; want %v", tt.name, got, tt.want)
		}
	}
}

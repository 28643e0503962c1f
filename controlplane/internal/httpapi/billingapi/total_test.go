package billingapi

import (
	"encoding/json"
	"reflect"
	"testing"

	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/price"
)

// The total of each kind of usage is in the API under its name, cache writes of any lifetime in one.
func TestTotalsHaveEachKindOfUsage(t *testing.T) {
	t.Parallel()
	total := usage.Total{}
	sums := reflect.ValueOf(&total.Sums).Elem()
	for i := range sums.NumField() {
		sums.Field(i).SetInt(int64(100 + i))
	}
	text, err := json.Marshal(totalView(&total, usage.Group{}))
	if err != nil {
		t.Fatal(err)
	}
	var view map[string]any
	if err := json.Unmarshal(text, &view); err != nil {
		t.Fatal(err)
	}

	seen := map[any]string{}
	for _, kind := range price.Kinds {
		name := string(kind.Line)
		if kind.IsCacheWrite {
			name = "cache_write"
		}
		count, ok := view[name]
		if other := seen[count]; !ok || count == 0.0 || other != "" && other != name {
			t.Errorf("%s: got %v, as %q has", name, count, other)
		}
		seen[count] = name
	}
}

package moneystore

import (
	"reflect"
	"strings"
	"testing"

	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// Each kind of usage is counted in the column of its name, cache writes of any lifetime in one.
func TestEachKindOfUsageIsCountedInItsColumn(t *testing.T) {
	t.Parallel()
	for i, kind := range price.Kinds {
		e := &event.Usage{Status: event.Completed}
		*e.Usage.Counts()[i] = 7
		var sums daySums
		sums.add(&settle.Item{Event: e})
		params := sums.params()

		got := map[string]int64{}
		v := reflect.ValueOf(params)
		for n, field := range v.Fields() {
			if counts, ok := reflect.TypeAssert[[]int64](field); ok && counts[0] != 0 {
				got[strings.ToLower(n.Name)] = counts[0]
			}
		}

		column := strings.ReplaceAll(string(kind.Line), "_", "")
		if kind.IsCacheWrite {
			column = "cachewrite"
		}
		if want := map[string]int64{"requests": 1, column: 7}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v; want %v", kind.Line, got, want)
		}
	}
}

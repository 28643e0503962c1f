package kit

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
)

func TestChartTellsUnknownFromZero(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 3, 9, 0, 0, 0, time.UTC)
	count := func(label string, n int64) adminclient.SeriesValue {
		return adminclient.SeriesValue{Label: label, Count: &n}
	}
	var c Chart
	c.Stack(&adminclient.TrafficSeries{Points: []adminclient.SeriesPoint{
		{At: at, KnownMinutes: 1, Values: []adminclient.SeriesValue{count("200", 5), count("201", 7), count("402", 1)}},
		{At: at.Add(time.Minute)},
		{At: at.Add(2 * time.Minute), KnownMinutes: 1},
		{At: at.Add(3 * time.Minute)}, // not written yet
	}}, func(label string) string { return label[:1] })
	want := []ChartRow{
		{At: at, Known: true, Values: []string{"12", "1"}},
		{At: at.Add(time.Minute), Values: []string{"", ""}},
		{At: at.Add(2 * time.Minute), Known: true, Values: []string{"0", "0"}},
	}
	if diff := cmp.Diff(want, c.Rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestChartAddsUpSmallSeriesExactly(t *testing.T) {
	t.Parallel()
	point := adminclient.SeriesPoint{KnownMinutes: 1}
	for i := range 9 {
		cost := "1000000000." + strconv.Itoa(i+1) + "00000001"
		point.Values = append(point.Values, adminclient.SeriesValue{Label: strconv.Itoa(i), Cost: &cost})
	}
	var c Chart
	c.Stack(&adminclient.TrafficSeries{Points: []adminclient.SeriesPoint{point}}, nil)
	if len(c.Columns) != 6 || c.Columns[0].Name != "8" || c.Columns[5].Name != "other" {
		t.Errorf("columns: %v; want the greatest five and the rest", c.Columns)
	}
	if got := c.Rows[0].Values[5]; got != "4000000001.000000004" {
		t.Errorf("the rest is %s; want 4000000001.000000004", got)
	}
}

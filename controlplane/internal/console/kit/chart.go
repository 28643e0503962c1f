package kit

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/view"
)

// Chart is a measure over time, for the part "chart": a table that a script draws. Values are decimals as texts.
type Chart struct {
	// ID is unique on the page.
	ID, Title, Unit string
	// Kind is "stack" for bars on top of each other, or "lines".
	Kind    string
	Columns []ChartColumn
	Rows    []ChartRow
	// Exact is set if the values are sums of settled requests. Otherwise proxies have reported them.
	Exact bool
	// Problem is the reason for which the chart could not be read.
	Problem string
}

// ChartColumn is one series. Colour is a name that the style sheet knows: "s1" to "s7", "good", "warn", "bad" or "idle".
type ChartColumn struct{ Name, Colour string }

// ChartRow has the values of one period in the order of the columns. An empty value is unknown, or nothing was observed.
type ChartRow struct {
	At     time.Time
	Known  bool
	Values []string
}

// maxColumns bounds the series of a chart. The smallest are added up.
const maxColumns = 6

// other is the name of the sum of small series, also in the API.
const other = "other"

// Stack fills a chart with the values of a series by label. name returns the column of a label, and may give several
// labels one column; nil keeps the labels.
func (c *Chart) Stack(series *adminclient.TrafficSeries, name func(label string) string) {
	if name == nil {
		name = func(label string) string { return label }
	}

	sums := map[string]string{}
	for _, p := range series.Points {
		for _, v := range p.Values {
			sums[name(v.Label)] = view.Add(cmp.Or(sums[name(v.Label)], "0"), amount(&v))
		}
	}

	names := make([]string, 0, len(sums))
	for n := range sums {
		names = append(names, n)
	}

	slices.SortFunc(names, func(a, b string) int { return cmp.Or(view.Compare(sums[b], sums[a]), cmp.Compare(a, b)) })
	if i := slices.Index(names, other); i >= 0 { // the rest comes last
		names = append(slices.Delete(names, i, i+1), other)
	}

	index := map[string]int{}
	for i, n := range names {
		index[n] = min(i, maxColumns-1)
		if i < maxColumns {
			c.Columns = append(c.Columns, ChartColumn{n, "s" + strconv.Itoa(i+1)})
		}
	}

	if len(names) > maxColumns {
		c.Columns[maxColumns-1].Name = other
	}

	c.Kind, c.Exact = "stack", series.FromRecords
	c.fill(series, func(p *adminclient.SeriesPoint, values []string) {
		for i := range values {
			values[i] = "0"
		}
		for _, v := range p.Values {
			at := index[name(v.Label)]
			if values[at] == "0" {
				values[at] = amount(&v)
			} else {
				values[at] = sum(&v, values[at])
			}
		}
	})
}

// Quantiles fills a chart with the quantiles of a series of times.
func (c *Chart) Quantiles(series *adminclient.TrafficSeries) {
	c.Kind, c.Unit = "lines", "ms"
	c.Columns = []ChartColumn{{"p50", "s1"}, {"p95", "s2"}, {"p99", "s3"}}
	c.fill(series, func(p *adminclient.SeriesPoint, values []string) {
		for _, v := range p.Values {
			for i, q := range []*float64{v.P50Ms, v.P95Ms, v.P99Ms} {
				if q != nil {
					values[i] = strconv.FormatFloat(*q, 'f', 0, 64)
				}
			}
		}
	})
}

// fill adds the rows. The newest periods are left out while nothing of them is known: they are not written yet.
func (c *Chart) fill(series *adminclient.TrafficSeries, read func(*adminclient.SeriesPoint, []string)) {
	points := series.Points
	for len(points) > 0 && points[len(points)-1].KnownMinutes == 0 && !series.FromRecords && len(series.Points)-len(points) < 2 {
		points = points[:len(points)-1]
	}
	for i := range points {
		row := ChartRow{At: points[i].At, Known: points[i].KnownMinutes > 0 || series.FromRecords, Values: make([]string, len(c.Columns))}
		if row.Known {
			read(&points[i], row.Values)
		}
		c.Rows = append(c.Rows, row)
	}
}

// Empty reports whether no period has a value.
func (c *Chart) Empty() bool {
	return !slices.ContainsFunc(c.Rows, func(r ChartRow) bool {
		return slices.ContainsFunc(r.Values, func(v string) bool { return v != "" })
	})
}

// amount returns the value as a decimal.
func amount(v *adminclient.SeriesValue) string {
	switch {
	case v.Cost != nil:
		return *v.Cost
	case v.Count != nil:
		return strconv.FormatInt(*v.Count, 10)
	default:
		return "0"
	}
}

// sum adds a value to a decimal, and keeps counts whole.
func sum(v *adminclient.SeriesValue, to string) string {
	if v.Cost != nil {
		return view.Add(to, *v.Cost)
	}
	n, err := strconv.ParseInt(to, 10, 64)
	if err != nil || v.Count == nil {
		return to
	}
	return strconv.FormatInt(n+*v.Count, 10)
}

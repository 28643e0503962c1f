package nowpages

import (
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// period is the time that charts show.
type period struct {
	// name is that of a period up to now; empty for one of an address.
	name     string
	from, to time.Time
	step     adminclient.GetTrafficSeriesParamsStep
}

// ranges are the periods that the page offers.
var ranges = map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour}

// The longest periods that are shown by minute and by hour.
const (
	minuteStepsUpTo = 3 * time.Hour
	hourStepsUpTo   = 8 * 24 * time.Hour
)

// periodOf returns the period that the address asks for: range, or from and to.
func periodOf(r *kit.Request, now time.Time) (period, error) {
	from, err := kit.Moment("from", r.Text("from"))
	if err != nil {
		return period{}, err
	}

	to, err := kit.Moment("to", r.Text("to"))
	if err != nil {
		return period{}, err
	}

	p := period{name: r.Text("range"), to: now.UTC()}
	if from != nil {
		p.name, p.from = "", from.UTC()
		if to != nil {
			p.to = to.UTC()
		}
	} else {
		if ranges[p.name] == 0 {
			p.name = "1h"
		}
		p.from = p.to.Add(-ranges[p.name])
	}

	switch length := p.to.Sub(p.from); {
	case length <= 0:
		return period{}, kit.Invalid("to", "must be after from")
	case length <= minuteStepsUpTo:
		p.step = adminclient.GetTrafficSeriesParamsStepN1M
	case length <= hourStepsUpTo:
		p.step = adminclient.GetTrafficSeriesParamsStepN1H
	default:
		p.step = adminclient.GetTrafficSeriesParamsStepN1D
	}

	return p, nil
}

// chart is a chart with where its values come from.
type chart struct {
	kit.Chart
	measure adminclient.GetTrafficSeriesParamsMeasure
	by      *adminclient.GetTrafficSeriesParamsBy
	// name gives labels one column; nil keeps them.
	name func(label string) string
}

// statusClass is the column of a status.
func statusClass(status string) string {
	if status == "" {
		return "none"
	}
	return status[:1] + "xx"
}

var statusColours = map[string]string{"2xx": "good", "3xx": "idle", "4xx": "warn", "5xx": "bad"}

func refusalsByCode(title string) *chart {
	return &chart{
		Chart: kit.Chart{ID: "refusals", Title: title, Unit: "refusals"}, measure: adminclient.GetTrafficSeriesParamsMeasureRefusals,
		by: new(adminclient.GetTrafficSeriesParamsByCode),
	}
}

func charts() []*chart {
	return []*chart{
		{
			Chart:   kit.Chart{ID: "by-status", Title: "Requests by status", Unit: "requests"},
			measure: adminclient.GetTrafficSeriesParamsMeasureRequests,
			by:      new(adminclient.GetTrafficSeriesParamsByStatus),
			name:    statusClass,
		},
		refusalsByCode("Refusals by code"),
		{
			Chart: kit.Chart{
				ID:    "attempts",
				Title: "Calls of providers",
				Unit:  "calls",
			},
			measure: adminclient.GetTrafficSeriesParamsMeasureAttempts,
			by:      new(adminclient.GetTrafficSeriesParamsByProvider),
		},
		{Chart: kit.Chart{ID: "ttft", Title: "Time to the first token"}, measure: adminclient.GetTrafficSeriesParamsMeasureTtft},
		{
			Chart: kit.Chart{ID: "cost", Title: "Cost by model"}, measure: adminclient.GetTrafficSeriesParamsMeasureCost,
			by: new(adminclient.GetTrafficSeriesParamsByModel),
		},
		{
			Chart: kit.Chart{
				ID:    "tokens",
				Title: "Tokens by model",
				Unit:  "tokens",
			},
			measure: adminclient.GetTrafficSeriesParamsMeasureTokens,
			by:      new(adminclient.GetTrafficSeriesParamsByModel),
		},
	}
}

// read fills the chart.
func (c *chart) read(r *kit.Request, p period) {
	answer, err := r.API.GetTrafficSeries(r.Context(), &adminclient.GetTrafficSeriesParams{
		Measure: c.measure,
		By:      c.by,
		Step:    &p.step,
		From:    &p.from,
		To:      &p.to,
	})
	if err != nil {
		c.Problem = err.Error()
		return
	}

	if c.measure == adminclient.GetTrafficSeriesParamsMeasureTtft {
		c.Quantiles(answer.Value)
		return
	}

	c.Stack(answer.Value, c.name)
	if c.ID == "by-status" {
		for i := range c.Columns {
			if colour := statusColours[c.Columns[i].Name]; colour != "" {
				c.Columns[i].Colour = colour
			}
		}
	}
}

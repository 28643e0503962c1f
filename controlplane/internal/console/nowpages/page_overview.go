package nowpages

import (
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

// overviewView is the data of the overview. A part that could not be read, or that the person may not see, is nil.
type overviewView struct {
	Needs *needs
	Tiles []tile
	// Heard and Silent count the proxies of which the tiles tell; Known is set if the person may see them.
	Known         bool
	Heard, Silent int
	At            time.Time

	// Charts are left out of the answers that only renew what is above them.
	Charts []*chart
	// Range is the name of the shown period; empty for one of an address with from and to.
	Range    string
	From, To string
	Problems []string
}

// tile is one figure. Value is empty if it is unknown.
type tile struct {
	Name, Value, Unit, Note string
	// Kind is "bad" or "warn" if the figure needs attention.
	Kind string
	// Spark is the path of the sparkline of the last 15 minutes; empty without one.
	Spark string
	URL   string
}

// overviewPage serves the overview.
type overviewPage struct {
	needs needsReader
	fleet recent[adminclient.Fleet]
	today recent[adminclient.UsageTotalList]
}

// recent keeps what was read for some seconds, however many pages show it.
type recent[T any] struct {
	mu   sync.Mutex
	at   time.Time
	last *T
}

// recentFor is how long figures are shown before they are read again.
const recentFor = 4 * time.Second

// get reads the figures if they are old. It keeps no error.
func (c *recent[T]) get(read func() (*adminclient.Response[T], error)) (*T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && time.Since(c.at) < recentFor {
		return c.last, nil
	}
	answer, err := read()
	if err != nil {
		return nil, err
	}
	c.at, c.last = time.Now(), answer.Value
	return c.last, nil
}

// show shows what needs attention, figures of now, and charts. The script of the page asks for it again with charts=none.
func (o *overviewPage) show(r *kit.Request) (*kit.Page, error) {
	v := &overviewView{At: time.Now()}
	period, err := periodOf(r, v.At)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var parts sync.WaitGroup
	failed := func(part string, err error) {
		mu.Lock()
		defer mu.Unlock()
		v.Problems = append(v.Problems, part+" cannot be read: "+err.Error())
	}
	var now *adminclient.Traffic
	var fleet *adminclient.Fleet
	var today *adminclient.UsageTotalList
	if r.May(kit.Observe) {
		parts.Go(func() { v.Needs = o.needs.get(r) })
		parts.Go(func() {
			answer, err := r.API.GetTraffic(r.Context())
			if err != nil {
				failed("The traffic", err)
				return
			}
			now = answer.Value
		})
		parts.Go(func() {
			var err error
			if fleet, err = o.fleet.get(func() (*adminclient.Response[adminclient.Fleet], error) { return r.API.ListProxies(r.Context()) }); err != nil {
				failed("The list of proxies", err)
			}
		})
	}
	parts.Go(func() {
		day := v.At.UTC().Format(time.DateOnly)
		var err error
		if today, err = o.today.get(func() (*adminclient.Response[adminclient.UsageTotalList], error) {
			return r.API.GetUsageTotals(r.Context(), &adminclient.GetUsageTotalsParams{From: &day})
		}); err != nil {
			failed("The usage of today", err)
		}
	})
	if r.Text("charts") != "none" {
		v.Range, v.From, v.To = period.name, period.from.Format(time.RFC3339), period.to.Format(time.RFC3339)
		v.Charts = charts()
		for _, c := range v.Charts {
			parts.Go(func() { c.read(r, period) })
		}
	}
	parts.Wait()
	v.Tiles = tiles(now, fleet, today)
	for _, c := range v.Charts {
		if c.measure == adminclient.GetTrafficSeriesParamsMeasureCost && today != nil {
			c.Unit = today.Currency
		}
	}
	if now != nil {
		v.Known, v.Heard, v.Silent = true, now.Heard, now.Silent
	}
	return &kit.Page{Template: "overview", Title: "Overview", Command: "gwctl doctor\ngwctl traffic get\ngwctl proxies list", Data: v}, nil
}

// tiles returns the figures of what could be read.
func tiles(now *adminclient.Traffic, fleet *adminclient.Fleet, today *adminclient.UsageTotalList) []tile {
	var all []tile
	if now != nil {
		all = trafficTiles(now)
	}
	if today != nil {
		charged, requests := "0.00", int64(0)
		for _, t := range today.Data {
			charged, requests = t.Cost, t.Requests
		}
		all = append(all, tile{Name: "Charged today", Value: charged, Unit: today.Currency, Note: view.Count(requests) + " settled requests, UTC day", URL: "/console/usage"})
	}
	if fleet != nil {
		unsettled := int64(0)
		for _, p := range fleet.Data {
			unsettled += p.Unsettled
		}
		all = append(all, tile{Name: "Unsettled", Value: view.Count(unsettled), Note: "finished requests, not in the ledger yet", URL: "/console/proxies"})
	}
	if now != nil {
		t := tile{Name: "Proxies", Value: fmt.Sprintf("%d of %d", now.Heard, now.Heard+now.Silent), Note: "reported in the last 6 s", URL: "/console/proxies"}
		if now.Silent > 0 || now.Heard == 0 {
			t.Kind = "bad"
		}
		all = append(all, t)
	}
	return all
}

// trafficTiles returns the figures that the heard proxies report. They are unknown if there is none.
func trafficTiles(now *adminclient.Traffic) []tile {
	requests := tile{Name: "Requests", Unit: "/s", Note: "all endpoints", URL: "/console/live"}
	success := tile{Name: "Success", Unit: "%", Note: "answered with 2xx", URL: "/console/requests"}
	ttft := tile{Name: "First token, p95", Note: "of streams", URL: "/console/routes"}
	flight := tile{Name: "In flight", Note: "requests being answered", URL: "/console/live"}
	refused := tile{Name: "Refused", Unit: "/s", Note: "before a provider was called", URL: "/console/refusals"}
	var perSecond, flying, firstToken, refusals []*float64
	for i := range now.History {
		p := &now.History[i]
		perSecond, firstToken, refusals = append(perSecond, p.Requests), append(firstToken, p.TtftP95Ms), append(refusals, p.Refused)
		var n *float64
		if p.InFlight != nil {
			n = new(float64(*p.InFlight))
		}
		flying = append(flying, n)
	}
	requests.Spark, ttft.Spark, flight.Spark, refused.Spark = view.Spark(perSecond), view.Spark(firstToken), view.Spark(flying), view.Spark(refusals)
	c := now.Current
	if c == nil {
		return []tile{requests, success, ttft, flight, refused}
	}
	requests.Note = fmt.Sprintf("mean of %d s", now.WindowSeconds)
	requests.Value = success.setShare(c.Requests)
	short := 0.0
	for _, rate := range c.Refusals {
		short += rate
	}
	refused.Value = rateText(short)
	if q := c.TtftMS; q != nil {
		ttft.Value, ttft.Note = view.Milliseconds(int64(q.P95)), "p50 "+view.Milliseconds(int64(q.P50))
	} else {
		ttft.Note = "no stream in this window"
	}
	count := int64(0)
	for _, n := range c.InFlight {
		count += n
	}
	flight.Value = view.Count(count)
	return []tile{requests, success, ttft, flight, refused}
}

// setShare shows the share of answers that are no errors, and returns the rate of all.
func (t *tile) setShare(rates []adminclient.TrafficRate) string {
	sum, good, failed := 0.0, 0.0, 0.0
	for _, rate := range rates {
		sum += rate.PerSecond
		switch rate.StatusClass {
		case 2, 3:
			good += rate.PerSecond
		case 5:
			failed += rate.PerSecond
		}
	}
	if sum == 0 {
		t.Note = "no request in this window"
		return rateText(0)
	}
	t.Value, t.Note = percent(good/sum), fmt.Sprintf("4xx %s/s, 5xx %s/s", rateText(max(sum-good-failed, 0)), rateText(failed))
	if failed/sum > 0.01 {
		t.Kind = "bad"
	}
	return rateText(sum)
}

// rateText writes a rate with three digits or so.
func rateText(perSecond float64) string {
	switch {
	case perSecond >= 100:
		return view.Count(int64(math.Round(perSecond)))
	case perSecond >= 10:
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	default:
		return strconv.FormatFloat(perSecond, 'f', 2, 64)
	}
}

// percent never rounds up to 100.
func percent(share float64) string {
	return strconv.FormatFloat(math.Floor(share*10_000)/100, 'f', 2, 64)
}

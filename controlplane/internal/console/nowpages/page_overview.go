package nowpages

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

// overviewView is the data of the overview. A part that could not be read, or that the person may not see, is nil.
type overviewView struct {
	Tiles []tile
	// Heard and Silent count the proxies of which the tiles tell; Known is set if the person may see them.
	Known         bool
	Heard, Silent int
	// Unheard are the proxies that are silent.
	Unheard []adminclient.TrafficProxy
	At      time.Time
	// Away is set if only the traffic is read, because the database does not answer.
	Away bool

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
	// Stored is set for a figure that is read from the database.
	Stored bool
}

// overviewPage serves the overview.
type overviewPage struct {
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

// kept returns what was read last, and when; nil if nothing was.
func (c *recent[T]) kept() (*T, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, c.at
}

// show shows what needs attention, figures of now, and charts. The script of the page asks for it again with charts=none.
func (o *overviewPage) show(r *kit.Request) (*kit.Page, error) {
	v := &overviewView{At: time.Now(), Away: r.Session.Remembered}
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
		parts.Go(func() {
			answer, err := r.API.GetTraffic(r.Context())
			if err != nil {
				failed("The traffic", err)
				return
			}
			now = answer.Value
		})
	}

	if r.May(kit.Observe) && !v.Away {
		parts.Go(func() {
			var err error
			if fleet, err = o.fleet.get(
				func() (*adminclient.Response[adminclient.Fleet], error) { return r.API.ListProxies(r.Context()) },
			); err != nil {
				failed("The list of proxies", err)
			}
		})
	}

	readToday := func() {
		day := v.At.UTC().Format(time.DateOnly)
		var err error
		if today, err = o.today.get(func() (*adminclient.Response[adminclient.UsageTotalList], error) {
			return r.API.GetUsageTotals(r.Context(), &adminclient.GetUsageTotalsParams{From: &day})
		}); err != nil {
			failed("The usage of today", err)
		}
	}

	var asOf time.Time
	if !v.Away {
		parts.Go(readToday)
	} else {
		today, asOf = o.today.kept()
	}

	if r.Text("charts") != "none" && !v.Away {
		v.Range, v.From, v.To = period.name, period.from.Format(time.RFC3339), period.to.Format(time.RFC3339)
		v.Charts = charts()
		for _, c := range v.Charts {
			parts.Go(func() { c.read(r, period) })
		}
	}

	parts.Wait()
	v.Tiles = tiles(now, fleet, today)
	if v.Away {
		markOld(v.Tiles, asOf)
	}

	for _, c := range v.Charts {
		if c.measure == adminclient.GetTrafficSeriesParamsMeasureCost && today != nil {
			c.Unit = today.Currency
		}
	}

	if now != nil {
		v.Known, v.Heard, v.Silent = true, now.Heard, now.Silent
		v.Unheard = slices.DeleteFunc(slices.Clone(now.Proxies), func(p adminclient.TrafficProxy) bool { return !p.Silent })
	}

	return &kit.Page{
		Template: "overview",
		Title:    "Overview",
		Command:  "gwctl doctor\ngwctl traffic get\ngwctl proxies list",
		Data:     v,
	}, nil
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
		all = append(all, tile{
			Name:   "Charged today",
			Value:  charged,
			Unit:   today.Currency,
			Note:   view.Count(requests) + " settled requests, UTC day",
			URL:    "/console/usage",
			Stored: true,
		})
	}

	if now != nil {
		all = append(all, unsettledTile(now, fleet))
		t := tile{
			Name:  "Proxies",
			Value: fmt.Sprintf("%d of %d", now.Heard, now.Heard+now.Silent),
			Note:  "reported in the last 6 s",
			URL:   "/console/proxies",
		}
		if now.Silent > 0 || now.Heard == 0 {
			t.Kind = "bad"
		}
		all = append(all, t)
	}

	return all
}

// The ages of the oldest unsettled request from which on the figure needs attention.
const unsettledWarning, unsettledFailure = time.Minute, 5 * time.Minute

// unsettledTile returns the age of the oldest finished request that is not in the ledger yet, as the proxies report it.
func unsettledTile(now *adminclient.Traffic, fleet *adminclient.Fleet) tile {
	t := tile{Name: "Unsettled", Note: "age of the oldest request that is not in the ledger", URL: "/console/proxies"}
	if fleet != nil {
		count := int64(0)
		for _, p := range fleet.Data {
			count += p.Unsettled
		}
		t.Note = "age of the oldest; requests not in the ledger: " + view.Count(count)
	}

	var oldest *int64
	for _, p := range now.Proxies {
		if p.UnsettledMS != nil && (oldest == nil || *p.UnsettledMS > *oldest) {
			oldest = p.UnsettledMS
		}
	}

	if oldest == nil {
		return t
	}

	t.Value = view.Milliseconds(*oldest)
	switch age := time.Duration(*oldest) * time.Millisecond; {
	case age >= unsettledFailure:
		t.Kind = "bad"
	case age >= unsettledWarning:
		t.Kind = "warn"
	}

	return t
}

// markOld says when the figures that need the database were read.
func markOld(all []tile, at time.Time) {
	for i := range all {
		if t := &all[i]; t.Stored && t.Value != "" {
			t.Note = "read at " + at.UTC().Format("15:04:05") + " UTC, not known since"
		}
	}
}

// trafficTiles returns the figures that the proxies report. They are unknown if there is none.
func trafficTiles(now *adminclient.Traffic) []tile {
	requests := tile{
		Name: "Requests",
		Unit: "/s",
		Note: "all endpoints",
		URL:  "/console/live",
	}

	success := tile{
		Name: "Success",
		Unit: "%",
		Note: "answered with 2xx",
		URL:  "/console/requests",
	}

	ttft := tile{Name: "First token, p95", Note: "of streams", URL: "/console/routes"}
	flight := tile{Name: "In flight", Note: "requests being answered", URL: "/console/live"}

	refused := tile{
		Name: "Refused",
		Unit: "/s",
		Note: "before a provider was called",
		URL:  "/console/refusals",
	}

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

	requests.Spark, ttft.Spark = view.Spark(perSecond), view.Spark(firstToken)
	flight.Spark, refused.Spark = view.Spark(flying), view.Spark(refusals)
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

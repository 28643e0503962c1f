package trafficapi

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/money"
	"modelgateway/shared/pulse"
)

func (h *Handlers) GetTrafficSeries(
	ctx context.Context,
	_ *gen.Call,
	r gen.GetTrafficSeriesRequestObject,
) (gen.GetTrafficSeriesResponseObject, error) {
	p := r.Params
	step := gen.GetTrafficSeriesParamsStepN1M
	if p.Step != nil {
		step = *p.Step
	}

	series, err := h.Past.Series(ctx, traffic.Query{
		Measure: traffic.Measure(p.Measure),
		By:      string(convert.Value(p.By)),
		Step:    traffic.Steps[string(step)],
		From:    convert.Value(p.From),
		To:      convert.Value(p.To),
	})
	if err != nil {
		return nil, err
	}

	return gen.GetTrafficSeries200JSONResponse{
		Measure:     string(series.Measure),
		By:          convert.Optional(series.By),
		Step:        string(step),
		From:        series.From,
		To:          series.To,
		FromRecords: series.FromRecords,
		Points:      convert.All(series.Points, func(p *traffic.Point) gen.SeriesPoint { return seriesPoint(series, p) }),
	}, nil
}

func seriesPoint(s *traffic.Series, p *traffic.Point) gen.SeriesPoint {
	view := gen.SeriesPoint{At: p.At.UTC(), KnownMinutes: p.Minutes}
	if p.Minutes > 0 {
		view.Heard, view.Silent = &p.Heard, &p.Silent
	} else if !s.FromRecords {
		return view
	}

	view.Values = []gen.SeriesValue{}
	for _, label := range slices.Sorted(maps.Keys(p.Sums)) {
		sum := p.Sums[label]
		value := gen.SeriesValue{Label: label}
		if s.Measure == traffic.Cost {
			value.Cost = convert.Optional(money.Nano(sum.N).String())
		} else {
			value.Count = &sum.N
		}
		if s.Measure == traffic.TTFT || s.Measure == traffic.Duration {
			describe(&value, s.Reported, sum)
		}
		view.Values = append(view.Values, value)
	}

	return view
}

// describe adds the distribution of times.
func describe(value *gen.SeriesValue, m pulse.Measure, sum *traffic.Sum) {
	quantile := func(q float64) *float64 {
		d := sum.Quantile(m, q)
		if d == nil {
			return nil
		}
		ms := milliseconds(*d)
		return &ms
	}
	if sum.N > 0 {
		mean := float64(sum.SumMS) / float64(sum.N)
		value.MeanMS = &mean
	}
	value.P50Ms, value.P95Ms, value.P99Ms = quantile(0.5), quantile(0.95), quantile(0.99)
}

func (h *Handlers) ListRefusals(ctx context.Context, _ *gen.Call, r gen.ListRefusalsRequestObject) (gen.ListRefusalsResponseObject, error) {
	p, before, err := convert.ReadPageByNumber(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	q := traffic.RefusalQuery{
		Code:      convert.Text(r.Params.Code),
		RequestID: convert.Text(r.Params.RequestID),
		From:      convert.Value(r.Params.From),
		To:        convert.Value(r.Params.To),
		Before:    before,
		Limit:     p.Limit + 1,
	}

	var invalid validation.Errors
	ofAccount, ofKey := convert.ReadOwner(&invalid, r.Params.AccountID, r.Params.KeyID)
	q.Project = convert.ReadProjectOrNone(&invalid, r.Params.ProjectID, ofAccount)
	convert.CheckTimeRange(&invalid, q.From, q.To)
	if err := invalid.Err(); err != nil {
		return nil, err
	}
	if r.Params.AccountID != nil {
		q.Account = &ofAccount
	}
	if r.Params.KeyID != nil {
		q.Key = &ofKey
	}

	found, err := h.Past.Refusals(ctx, q)
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, found, func(r *traffic.HourlyRefusal) []byte { return strconv.AppendInt(nil, r.ID, 10) })
	return gen.ListRefusals200JSONResponse{Data: convert.All(found, refusalView), NextCursor: cursor}, nil
}

func refusalView(r *traffic.HourlyRefusal) gen.Refusal {
	return gen.Refusal{
		Hour:      r.Hour.UTC(),
		AccountID: convert.Optional(r.Account),
		KeyID:     convert.Optional(r.Key),
		Code:      r.Code,
		Status:    r.Status,
		Other:     r.Other,
		Count:     r.N,
		FirstAt:   r.First.UTC().Round(time.Millisecond),
		LastAt:    r.Last.UTC().Round(time.Millisecond),
		RequestID: r.RequestID,
		Model:     convert.Optional(r.Model),
		Short:     shortView(r.Short),
		Reason:    convert.Optional(r.Reason),
	}
}

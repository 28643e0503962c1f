package billingapi

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/price"
)

func (h *Handlers) GetUsageTotals(
	ctx context.Context,
	_ *gen.Call,
	r gen.GetUsageTotalsRequestObject,
) (gen.GetUsageTotalsResponseObject, error) {
	p, err := convert.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	q, err := totalQuery(&r.Params, &p)
	if err != nil {
		return nil, err
	}

	currency, err := h.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}

	found, err := h.Usage.Totals(ctx, q)
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, found, totalPosition)
	return gen.GetUsageTotals200JSONResponse{
		Currency:   currency,
		TimeZone:   zoneName(q.Zone),
		NextCursor: cursor,
		Data:       convert.All(found, func(t *usage.Total) gen.UsageTotal { return totalView(t, q.By) }),
	}, nil
}

// totalQuery parses the filters of totals.
func totalQuery(params *gen.GetUsageTotalsParams, p *convert.Page) (usage.TotalQuery, error) {
	var invalid validation.Errors
	q := usage.TotalQuery{
		By:    readGroup(&invalid, params.GroupBy),
		Model: convert.Text(params.Model),
		Limit: p.Limit + 1,
		From:  convert.ReadDay(&invalid, "from", params.From),
		To:    convert.ReadDay(&invalid, "to", params.To),
	}
	q.AccountID, q.KeyID = convert.ReadOwner(&invalid, params.AccountID, params.KeyID)
	q.ProjectID = convert.ReadProjectOrNone(&invalid, params.ProjectID, q.AccountID)
	convert.CheckTimeRange(&invalid, q.From, q.To)
	q.Zone = readZone(&invalid, params.TimeZone)

	if p.Cursor != nil {
		q.After = &usage.Total{}
		if err := json.Unmarshal(p.Cursor, q.After); err != nil {
			invalid.Add("cursor", "is not a cursor of this list")
		}
	}

	return q, invalid.Err()
}

// readZone parses the parameter time_zone; nil is UTC.
func readZone(invalid *validation.Errors, name *string) *time.Location {
	if name == nil {
		return nil
	}
	zone, known := usage.FindZone(*name)
	if !known {
		invalid.Add("time_zone", "must be the IANA name of a time zone, such as Europe/Berlin")
	}
	return zone
}

func zoneName(zone *time.Location) string {
	if zone == nil {
		return time.UTC.String()
	}
	return zone.String()
}

// readGroup parses the parameter group_by.
func readGroup(invalid *validation.Errors, names []gen.UsageGroup) usage.Group {
	var g usage.Group
	for _, name := range names {
		switch name {
		case "day":
			g.Day = true
		case "account":
			g.Account = true
		case "project":
			g.Project = true
		case "key":
			g.Key = true
		case "model":
			g.Model = true
		case "service_tier":
			g.ServiceTier = true
		default:
			invalid.Add("group_by", "cannot be %q", name)
		}
	}

	return g
}

// totalPosition returns the position of a total in the list.
func totalPosition(t *usage.Total) []byte {
	text, err := json.Marshal(usage.Total{
		Day:       t.Day,
		AccountID: t.AccountID,
		ProjectID: t.ProjectID,
		KeyID:     t.KeyID,
		Model:     t.Model,

		ServiceTier: t.ServiceTier,
	})
	if err != nil { // times, ids and strings always marshal
		panic(err)
	}
	return text
}

func totalView(t *usage.Total, by usage.Group) gen.UsageTotal {
	view := gen.UsageTotal{
		Requests:           t.Requests,
		Estimated:          t.Estimated,
		ClientGone:         t.ClientGone,
		Input:              t.Input,
		CachedInput:        t.CachedInput,
		CacheWrite:         t.CacheWrite,
		Output:             t.Output,
		Reasoning:          t.Reasoning,
		AudioIn:            t.AudioIn,
		AudioOut:           t.AudioOut,
		ImageIn:            t.ImageIn,
		ImageOut:           t.ImageOut,
		Images:             t.Images,
		Seconds:            t.Seconds,
		ServerToolRequests: t.ServerToolRequests,
		Cost:               t.Cost.String(),
	}
	if by.Day {
		view.Day = new(convert.Day(t.Day))
	}
	if by.Account {
		view.AccountID = convert.Optional(t.AccountID.String())
	}
	if by.Project && t.ProjectID != (project.ID{}) {
		view.ProjectID = convert.Optional(t.ProjectID.String())
	}
	if by.Key {
		view.KeyID = convert.Optional(t.KeyID.String())
	}
	if by.Model {
		view.Model = &t.Model
	}
	if by.ServiceTier {
		view.ServiceTier = new(cmp.Or(t.ServiceTier, price.DefaultTier))
	}

	return view
}

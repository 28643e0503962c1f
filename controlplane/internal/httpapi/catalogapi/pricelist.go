package catalogapi

import (
	"context"

	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/pricelist"
	"modelgateway/controlplane/internal/validation"
)

// maxListed bounds the entries of a price list that a response names, of those that change nothing.
const maxListed = 1000

func (h *Handlers) ProposePriceList(
	ctx context.Context,
	call *gen.Call,
	r gen.ProposePriceListRequestObject,
) (gen.ProposePriceListResponseObject, error) {
	options := pricelist.Options{Providers: r.Body.Providers, Models: r.Body.Models, Currency: convert.Text(r.Body.Currency)}
	var unread, missing error
	options.Markup, unread = pricelist.ParseMarkup(convert.Text(r.Body.Markup))
	if r.Body.Prices == nil {
		missing = validation.New("prices", "is missing")
	}
	if err := validation.Merge(missing, pricelist.CheckProviders(options.Providers), unread); err != nil {
		return nil, err
	}

	list, err := pricelist.Read(r.Body.Prices, options)
	if err != nil {
		return nil, err
	}

	doc, tag, err := h.Catalog.Export(ctx)
	if err != nil {
		return nil, err
	}

	found, err := list.Compare(doc)
	if err != nil {
		return nil, err
	}

	call.ETag = tag
	answer := gen.ProposePriceList200JSONResponse{
		Currency:     doc.Currency,
		Document:     *found.Document,
		Models:       convert.All(found.Models, modelProposal),
		UnknownCount: len(found.Unknown),
		Unknown:      convert.All(found.Unknown[:min(len(found.Unknown), maxListed)], unknownView),
		OmittedCount: len(list.Omitted),
		Omitted:      convert.All(list.Omitted[:min(len(list.Omitted), maxListed)], omissionView),
	}
	return answer, nil
}

func modelProposal(m *pricelist.Model) gen.PriceListModel {
	view := gen.PriceListModel{
		Model:    m.ID,
		Entry:    convert.Optional(m.Entry),
		Status:   gen.PriceListModelStatus(m.Status),
		Before:   m.Before,
		Problem:  convert.Optional(m.Problem),
		Warnings: append([]string{}, m.Warnings...),
	}
	if m.Status == pricelist.Changed {
		view.After = &m.After
	}
	return view
}

func unknownView(u *pricelist.Unknown) gen.PriceListUnknown {
	view := gen.PriceListUnknown{
		Entry:    u.Entry,
		Model:    u.Model.ID,
		Provider: u.Provider,
		Type:     gen.PriceListUnknownType(u.Model.Type),
		Price:    u.Model.Price,
		Formats:  []string{},
	}
	for _, format := range u.Model.Routes[0].Formats {
		view.Formats = append(view.Formats, string(format))
	}
	return view
}

func omissionView(o *pricelist.Omission) gen.PriceListOmission {
	return gen.PriceListOmission{Entry: o.Model, Member: convert.Optional(o.Member), Reason: o.Reason}
}

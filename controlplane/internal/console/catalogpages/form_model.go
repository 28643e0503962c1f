package catalogpages

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/priceform"
)

func belowModel(id string) []kit.Link {
	return append(slices.Clip(modelCrumbs), kit.Link{Text: id, URL: kit.Path("models", id)})
}

// patch is a JSON merge patch: nil sets the default of a member.
type patch map[string]any

// number sets a member to a number, or to its default if the field is empty.
func (p patch) number(in *kit.Input, name string) error {
	n, err := in.Int(name)
	if err != nil {
		return err
	}
	p[name] = nil
	if n != nil {
		p[name] = *n
	}
	return nil
}

// text sets a member to a text, or to its default if the field is empty.
func (p patch) text(in *kit.Input, name string) {
	p[name] = nil
	if t := in.Text(name); t != "" {
		p[name] = t
	}
}

// body sends the patch in place of the body of the operation.
func (p patch) body() (adminclient.CallOption, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode a patch: %w", err)
	}
	return adminclient.WithBody("application/json", text), nil
}

func decimal[N int | int64](n *N) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

// editModel is the form that changes a model, without its price and routes.
func editModel(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetModel(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	m := now.Value
	back := kit.Path("models", m.ID)

	fields := []kit.Field{
		{Name: "display_name", Label: "Display name", Value: name(m.DisplayName)},
		{Name: "enabled", Label: "Enabled: requests may use it", Kind: "check", Value: kit.Checked(isSet(m.Enabled))},
		{
			Name:  "public",
			Label: "Public: every account may use it",
			Kind:  "check",
			Value: kit.Checked(isSet(m.Public)),
			Hint:  "Otherwise only accounts to which it is granted.",
		},
	}

	numbers := []string{"context_window", "max_output_tokens", "reserve_output_tokens"}
	if m.Type == adminclient.CatalogModelTypeText {
		fields = append(
			fields,
			kit.Field{
				Name:  "context_window",
				Label: "Context window",
				Kind:  "number",
				Unit:  "tokens",
				Value: decimal(m.ContextWindow),
			},
			kit.Field{
				Name:  "max_output_tokens",
				Label: "Most output tokens",
				Kind:  "number",
				Unit:  "tokens",
				Value: decimal(m.MaxOutputTokens),
			},
			kit.Field{
				Name:  "reserve_output_tokens",
				Label: "Reserved output tokens",
				Kind:  "number",
				Unit:  "tokens",
				Value: decimal(m.ReserveOutputTokens),
				Hint:  "Held for a request that sets no limit of its own.",
			},
		)
	} else {
		numbers = nil
	}

	return &kit.Form{
		Title:   "Change " + m.ID,
		Crumbs:  belowModel(m.ID),
		Submit:  "Save",
		Back:    back,
		Match:   now.Header.Get("ETag"),
		Fields:  fields,
		Command: "gwctl models update " + kit.Quote(m.ID),
		Effects: []string{"Requests that begin afterwards use the new values."},
		Review: func(_ *kit.Request, in *kit.Input) ([]string, error) {
			var effects []string
			if isSet(m.Enabled) && !in.Checked("enabled") {
				effects = append(effects, "New requests for the model are refused with 404. Running requests continue.")
			}
			if isSet(m.Public) && !in.Checked("public") {
				effects = append(effects, "Accounts without a grant can no longer use it.")
			}
			if !isSet(m.Public) && in.Checked("public") {
				effects = append(effects, "Every account can use it.")
			}
			return append(effects, "The proxies apply it within moments."), nil
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			p := patch{"enabled": in.Checked("enabled"), "public": in.Checked("public")}
			p.text(in, "display_name")

			for _, field := range numbers {
				if err := p.number(in, field); err != nil {
					return nil, err
				}
			}

			body, err := p.body()
			if err != nil {
				return nil, err
			}

			params := &adminclient.UpdateModelParams{Wait: kit.Wait(), IfMatch: in.Match()}
			done, err := r.API.UpdateModel(r.Context(), m.ID, params, adminclient.CatalogModelPatch{}, body)
			if err != nil {
				return nil, err
			}

			return kit.Go(back, kit.Applied("The model was saved.", done.Header))
		},
	}, nil
}

// changePrice is the form that sets or schedules a price. It shows how the price differs before it is set.
func changePrice(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetModel(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	m := now.Value
	back := kit.Path("models", m.ID)
	settings, err := r.API.GetSettings(r.Context())
	if err != nil {
		return nil, err
	}

	price := priceform.New(r, settings.Value.Currency, m.Type, m.Price)
	fields := append(
		slices.Clip(price.All),
		kit.Field{
			Name:  "effective_from",
			Label: "In force from (UTC)",
			Kind:  "datetime-local",
			Hint:  "Empty means at once.",
		},
		previewField(),
	)

	return &kit.Form{
		Title:   "Change the price of " + m.ID,
		Crumbs:  belowModel(m.ID),
		Submit:  "Set the price",
		Back:    back,
		Match:   now.Header.Get("ETag"),
		Command: "gwctl prices preview " + kit.Quote(m.ID) + "\ngwctl prices create " + kit.Quote(m.ID),
		Fields:  fields,
		Effects: []string{"Requests that begin afterwards are charged by it. Past requests and versions never change."},
		Review: func(r *kit.Request, in *kit.Input) ([]string, error) {
			body, err := price.Create(in)
			if err != nil {
				return nil, err
			}

			effects := priceform.Changes(&m.Price, &body.Price)
			if len(effects) == 0 {
				effects = []string{"No amount differs from the price in force."}
			}
			effects = append(effects, "The whole price then: "+priceform.Text(&body.Price)+".")

			past, err := preview(r, m.ID, &body.Price, in)
			if err != nil {
				return nil, price.AtField(err)
			}

			effects = append(effects, past...)
			if body.EffectiveFrom != nil {
				return append(effects, "In force from "+body.EffectiveFrom.Format("2006-01-02 15:04 UTC")+"."), nil
			}

			return append(effects, "In force at once, for requests that begin afterwards."), nil
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			body, err := price.Create(in)
			if err != nil {
				return nil, err
			}
			params := &adminclient.CreatePriceParams{Wait: kit.Wait(), IdempotencyKey: in.Key(), IfMatch: in.Match()}
			done, err := r.API.CreatePrice(r.Context(), m.ID, params, *body)
			if err != nil {
				return nil, price.AtField(err)
			}
			return kit.Go(back, kit.Applied("The price was set.", done.Header))
		},
	}, nil
}

// cancelPrice is the form that cancels a scheduled price.
func cancelPrice(r *kit.Request) (*kit.Form, error) {
	id, price := r.PathValue("id"), r.PathValue("price")
	answer, err := r.API.ListPrices(r.Context(), id, &adminclient.ListPricesParams{Limit: new(maxObjects)})
	if err != nil {
		return nil, err
	}

	at := slices.IndexFunc(answer.Value.Data, func(v adminclient.PriceVersion) bool { return v.ID != nil && *v.ID == price })
	if at < 0 {
		return nil, &adminclient.Error{StatusCode: http.StatusNotFound, Code: "not_found", Problem: adminclient.Problem{
			Title: "This price is not scheduled: it is in force, or was cancelled",
		}}
	}

	v := answer.Value.Data[at]
	back := kit.Path("models", id)
	return &kit.Form{
		Title:   "Cancel a price of " + id,
		Crumbs:  belowModel(id),
		Submit:  "Cancel the price",
		Danger:  true,
		Back:    back,
		Command: "gwctl prices cancel " + kit.Quote(id) + " " + kit.Quote(price),
		Effects: []string{
			"The price of " + v.EffectiveFrom.UTC().
				Format("2006-01-02 15:04 UTC") +
				" does not come into force: " +
				priceform.Text(&v.Price) + ".",
			"The price before it stays in force.",
		},
		Do: func(r *kit.Request, _ *kit.Input) (*kit.Page, error) {
			done, err := r.API.CancelPrice(r.Context(), id, price, &adminclient.CancelPriceParams{Wait: kit.Wait()})
			if err != nil {
				return nil, err
			}
			return kit.Go(back, kit.Applied("The scheduled price was cancelled.", done.Header))
		},
	}, nil
}

// editRoute is the form that changes a route.
func editRoute(r *kit.Request) (*kit.Form, error) {
	id, routeID := r.PathValue("id"), r.PathValue("route")
	now, err := r.API.GetRoute(r.Context(), id, routeID)
	if err != nil {
		return nil, err
	}

	model, err := r.API.GetModel(r.Context(), id)
	if err != nil {
		return nil, err
	}
	settings, err := r.API.GetSettings(r.Context())
	if err != nil {
		return nil, err
	}

	back := kit.Path("models", id)
	object, err := objectOf(now.Value)
	if err != nil {
		return nil, err
	}
	members := routeMembersOf(model.Value.Type)
	price := priceform.NewOfProvider(r, providerPriceMember, settings.Value.Currency, model.Value.Type, object[providerPriceMember])
	return &kit.Form{
		Title:   "Change route " + routeID,
		Crumbs:  belowModel(id),
		Submit:  "Save",
		Back:    back,
		Match:   now.Header.Get("ETag"),
		Command: "gwctl routes update " + kit.Quote(id) + " " + kit.Quote(routeID),
		Fields:  append(fieldsOf(members, "", object), price.All...),
		Effects: []string{
			"Requests that begin afterwards choose their routes by the new values, and have their provider cost by the new price.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			entered, err := price.Members(in)
			if err != nil {
				return nil, err
			}
			p, err := changeMembers(members, in, object, map[string]any{providerPriceMember: entered})
			if err != nil {
				return nil, err
			}

			body, err := p.body()
			if err != nil {
				return nil, err
			}

			params := &adminclient.UpdateRouteParams{Wait: kit.Wait(), IfMatch: in.Match()}
			done, err := r.API.UpdateRoute(r.Context(), id, routeID, params, adminclient.CatalogRoutePatch{}, body)
			if err != nil {
				return nil, price.AtField(err)
			}

			return kit.Go(back, kit.Applied("The route was saved.", done.Header))
		},
	}, nil
}

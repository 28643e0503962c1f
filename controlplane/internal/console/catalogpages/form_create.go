package catalogpages

import (
	"encoding/json"
	"fmt"
	"slices"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/priceform"
	"modelgateway/shared/catalogkv"
)

// onlyNew is the value of If-None-Match with which an operation creates an object of the catalog and never replaces one.
const onlyNew = "*"

// inUse returns the error of a field if creating an object failed because its id is in use, otherwise the error as it is.
func inUse(field string, err error) error {
	if adminclient.Code(err) == "already_exists" {
		return kit.Invalid(field, "is in use already")
	}
	return err
}

// ofNewProvider are the members of a provider that the form of a new one has: it is enabled.
var ofNewProvider = without(providerMembers, "enabled")

// ofNewRoute are those of a new route.
var ofNewRoute = without(routeMembers, "enabled")

// newCredential is the path of the credential of a new provider in its body, with a dot.
const newCredential = "credentials[0]."

func without(all []member, path string) []member {
	return slices.DeleteFunc(slices.Clone(all), func(m member) bool { return m.path == path })
}

// createProvider is the form that adds a provider with its first credential.
func createProvider(*kit.Request) (*kit.Form, error) {
	fields := slices.Concat(
		[]kit.Field{{Name: "id", Label: "Id", Mono: true, Required: true, Hint: "Made of a-z, 0-9 and -. It cannot be changed."}},
		fieldsOf(ofNewProvider, "", nil),
		[]kit.Field{{Name: newCredential + "name", Label: "Name of the credential", Required: true, Value: "main"}},
		credentialFields(newCredential, catalogkv.SecretCredential),
	)
	return &kit.Form{
		Title:   "Add a provider",
		Crumbs:  providerCrumbs,
		Submit:  "Add provider",
		Back:    "/console/providers",
		Command: "gwctl providers put ID",
		Fields:  fields,
		Effects: []string{"No request goes to the provider until a model has a route to it."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			p, err := readMembers(ofNewProvider, in, "")
			if err != nil {
				return nil, err
			}
			credential, err := readCredential(in, newCredential)
			if err != nil {
				return nil, err
			}
			id := in.Text("id")
			if id == "" {
				return nil, kit.Invalid("id", "must be set")
			}
			credential["name"] = in.Text(newCredential + "name")
			p["id"], p["credentials"] = id, []any{credential}
			body, err := patch(p).body()
			if err != nil {
				return nil, err
			}
			done, err := r.API.PutProvider(
				r.Context(),
				id,
				&adminclient.PutProviderParams{Wait: kit.Wait(), IfNoneMatch: new(onlyNew)},
				adminclient.CatalogProvider{},
				body,
			)
			if err != nil {
				return nil, inUse("id", err)
			}
			return kit.Go(kit.Path("providers", id), kit.Applied("The provider was added.", done.Header))
		},
	}, nil
}

// newRoute is the form of a new route.
type newRoute struct {
	// at is the path of the route in the body of the operation, with a dot.
	at     string
	fields []kit.Field
	price  *priceform.Fields
}

// routeForm returns the form of a new route at a path of a model of a type, or of every type if it is empty.
func routeForm(r *kit.Request, at, currency string, t adminclient.CatalogModelType) (*newRoute, error) {
	providers, err := r.API.ListProviders(r.Context(), &adminclient.ListProvidersParams{Limit: new(maxObjects)})
	if err != nil {
		return nil, err
	}

	var options []kit.Option
	for _, p := range providers.Value.Data {
		options = append(options, kit.Option{Value: p.ID})
	}

	f := &newRoute{at: at, price: priceform.NewOfProvider(r, at+providerPriceMember, currency, t, nil)}
	f.fields = slices.Concat(
		[]kit.Field{{Name: at + "provider", Label: "Provider", Kind: "select", Required: true, Options: options}},
		fieldsOf(ofNewRoute, at, nil),
		f.price.All,
	)
	return f, nil
}

// read reads the fields.
func (f *newRoute) read(in *kit.Input) (adminclient.CatalogRoute, error) {
	route := adminclient.CatalogRoute{}
	read, err := readMembers(ofNewRoute, in, f.at)
	if err != nil {
		return route, err
	}
	price, err := f.price.Members(in)
	if err != nil {
		return route, err
	}

	read["provider"] = in.Text(f.at + "provider")
	if price != nil {
		read[providerPriceMember] = price
	}
	text, err := json.Marshal(read)
	if err != nil {
		return route, fmt.Errorf("encode a route: %w", err)
	}
	if err := json.Unmarshal(text, &route); err != nil {
		return route, fmt.Errorf("read a route: %w", err)
	}

	return route, nil
}

// createRoute is the form that adds a route to a model.
func createRoute(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetModel(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	id := now.Value.ID
	settings, err := r.API.GetSettings(r.Context())
	if err != nil {
		return nil, err
	}
	form, err := routeForm(r, "", settings.Value.Currency, now.Value.Type)
	if err != nil {
		return nil, err
	}

	back := kit.Path("models", id)
	return &kit.Form{
		Title:   "Add a route of " + id,
		Crumbs:  belowModel(id),
		Submit:  "Add route",
		Back:    back,
		Command: "gwctl routes put " + kit.Quote(id) + " ID",
		Fields:  append([]kit.Field{{Name: "id", Label: "Id", Mono: true, Required: true, Hint: "It cannot be changed."}}, form.fields...),
		Effects: []string{
			"Requests that begin afterwards may use it, beside what the model has: " + number(int64(len(now.Value.Routes)), "route") + ".",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			routeID := in.Text("id")
			if routeID == "" {
				return nil, kit.Invalid("id", "must be set")
			}
			route, err := form.read(in)
			if err != nil {
				return nil, err
			}
			route.ID = &routeID
			done, err := r.API.PutRoute(
				r.Context(),
				id,
				routeID,
				&adminclient.PutRouteParams{Wait: kit.Wait(), IfNoneMatch: new(onlyNew)},
				route,
			)
			if err != nil {
				return nil, inUse("id", form.price.AtField(err))
			}
			return kit.Go(back, kit.Applied("The route was added.", done.Header))
		},
	}, nil
}

// createModel is the form that adds a model with its price and its first route.
func createModel(r *kit.Request) (*kit.Form, error) {
	settings, err := r.API.GetSettings(r.Context())
	if err != nil {
		return nil, err
	}
	route, err := routeForm(r, "routes[0].", settings.Value.Currency, "")
	if err != nil {
		return nil, err
	}

	fields := []kit.Field{
		{Name: "id", Label: "Id", Mono: true, Required: true, Hint: "The name that clients send. It cannot be changed."},
		{
			Name:     "type",
			Label:    "Type",
			Kind:     "select",
			Value:    string(adminclient.CatalogModelTypeText),
			Required: true,
			Options: []kit.Option{
				{
					Value: string(adminclient.CatalogModelTypeText),
				},
				{Value: string(adminclient.CatalogModelTypeImage)},
				{Value: string(adminclient.CatalogModelTypeVideo)},
			},
		},
		{Name: "display_name", Label: "Display name"},
		{Name: "public", Label: "Public: every account may use it", Kind: "check", Hint: "Otherwise only accounts to which it is granted."},
		{Name: "context_window", Label: "Context window", Kind: "number", Unit: "tokens", Hint: "For models of text."},
		{Name: "max_output_tokens", Label: "Most output tokens", Kind: "number", Unit: "tokens", Hint: "For models of text."},
	}
	price := priceform.New(r, settings.Value.Currency, "", nil)

	return &kit.Form{
		Title:   "Add a model",
		Crumbs:  modelCrumbs,
		Submit:  "Add model",
		Back:    "/console/models",
		Command: "gwctl models put ID",
		Fields:  slices.Concat(fields, price.All, route.fields),
		Effects: []string{"Clients can use it when the proxies have applied it, which takes moments."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			m, err := modelOf(in, price, route)
			if err != nil {
				return nil, err
			}
			done, err := r.API.PutModel(r.Context(), m.ID, &adminclient.PutModelParams{Wait: kit.Wait(), IfNoneMatch: new(onlyNew)}, *m)
			if err != nil {
				return nil, inUse("id", route.price.AtField(price.AtField(err)))
			}
			return kit.Go(kit.Path("models", m.ID), kit.Applied("The model was added.", done.Header))
		},
	}, nil
}

// modelOf reads the fields of a new model.
func modelOf(in *kit.Input, price *priceform.Fields, form *newRoute) (*adminclient.CatalogModel, error) {
	m := &adminclient.CatalogModel{
		ID:          in.Text("id"),
		Type:        adminclient.CatalogModelType(in.Text("type")),
		DisplayName: in.Optional("display_name"),
		Public:      new(in.Checked("public")),
	}
	if m.ID == "" {
		return nil, kit.Invalid("id", "must be set")
	}

	for field, into := range map[string]**int64{"context_window": &m.ContextWindow, "max_output_tokens": &m.MaxOutputTokens} {
		n, err := in.Int(field)
		if err != nil {
			return nil, err
		}
		*into = n
	}

	entered, err := price.Read(in)
	if err != nil {
		return nil, err
	}
	m.Price = *entered

	route, err := form.read(in)
	m.Routes = []adminclient.CatalogRoute{route}
	return m, err
}

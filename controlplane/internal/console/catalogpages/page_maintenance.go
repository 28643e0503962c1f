package catalogpages

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// listMaintenance shows what is closed, and what was.
func listMaintenance(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.ListMaintenance(r.Context())
	if err != nil {
		return nil, err
	}

	data := struct {
		*adminclient.MaintenanceList
		System *adminclient.Maintenance
		// Use is what is used now; nil if the person may not see it.
		Use *use
	}{answer.Value, maintenanceOf(answer.Value, adminclient.MaintenanceScopeSystem, ""), readUse(r)}

	return &kit.Page{
		Template: "maintenance",
		Title:    "Maintenance",
		Command:  "gwctl maintenance list",
		Data:     &data,
	}, nil
}

// target is what a form closes or opens: the system, or a model or provider that exists.
type target struct {
	scope    adminclient.MaintenanceScope
	id, name string
	// back is the page of the object.
	back string
}

func targetOf(r *kit.Request) (*target, error) {
	t := &target{scope: adminclient.MaintenanceScope(r.URL.Query().Get("scope")), id: r.URL.Query().Get("id")}
	var err error
	switch t.scope {
	case adminclient.MaintenanceScopeModel:
		_, err = r.API.GetModel(r.Context(), t.id)
		t.name, t.back = "the model "+t.id, kit.Path("models", t.id)
	case adminclient.MaintenanceScopeProvider:
		_, err = r.API.GetProvider(r.Context(), t.id)
		t.name, t.back = "the provider "+t.id, kit.Path("providers", t.id)
	case adminclient.MaintenanceScopeSystem:
		t.id, t.name, t.back = "", "the whole system", "/console/maintenance"
	default:
		err = kit.NotFound()
	}
	return t, err
}

func (t *target) command(verb string) string {
	switch t.scope {
	case adminclient.MaintenanceScopeModel:
		return "gwctl models " + verb + " " + kit.Quote(t.id)
	case adminclient.MaintenanceScopeProvider:
		return "gwctl providers " + verb + " " + kit.Quote(t.id)
	default:
		return "gwctl system " + verb
	}
}

var maintenanceCrumbs = []kit.Link{{Text: "Maintenance", URL: "/console/maintenance"}}

// effect tells who is refused while the target is closed.
func (t *target) effect() string {
	switch t.scope {
	case adminclient.MaintenanceScopeModel:
		return "New requests for " + t.id + " are refused with 503 and the message. Running requests continue."
	case adminclient.MaintenanceScopeProvider:
		return "New requests do not use " + t.id + ". Those whose model has no other route are refused with 503 and the message. " +
			"Running requests continue."
	default:
		return "New requests of all customers are refused with 503 and the message. Running requests continue; models, balances and " +
			"video jobs can be read."
	}
}

// closeScope is the form that puts something under maintenance.
func closeScope(r *kit.Request) (*kit.Form, error) {
	t, err := targetOf(r)
	if err != nil {
		return nil, err
	}

	effects := []string{t.effect()}
	if r.Method == http.MethodGet {
		effects = append(effects, t.inUse(r)...)
	}

	form := &kit.Form{
		Title:   "Close " + t.name,
		Crumbs:  maintenanceCrumbs,
		Submit:  "Close " + cmp.Or(t.id, "the system"),
		Danger:  true,
		Back:    t.back,
		Command: t.command("maintain"),
		Fields: []kit.Field{
			{Name: "message", Label: "Message to refused clients", Hint: "Empty means that the service is under maintenance."},
			{
				Name:  "until",
				Label: "Until (UTC)",
				Kind:  "datetime-local",
				Hint:  "It opens by itself then, and clients are told when to retry. Empty means that it lasts until it is ended.",
			},
		},
		Effects: effects,
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			until, err := kit.Moment("until", in.Text("until"))
			if err != nil {
				return nil, err
			}
			if until != nil && until.Before(time.Now()) {
				return nil, kit.Invalid("until", "must be in the future")
			}
			done, err := t.maintain(r.Context(), r.API, adminclient.MaintenanceSet{Message: in.Optional("message"), Until: until})
			if err != nil {
				return nil, err
			}
			return kit.Go(t.back, kit.Applied("It is closed.", done.Header))
		},
	}
	if t.scope == adminclient.MaintenanceScopeSystem {
		form.Fresh, form.Confirm = true, "the whole system"
	}

	return form, nil
}

func (t *target) maintain(
	ctx context.Context,
	api *adminclient.Client,
	body adminclient.MaintenanceSet,
) (*adminclient.Response[adminclient.Maintenance], error) {
	switch t.scope {
	case adminclient.MaintenanceScopeModel:
		return api.MaintainModel(ctx, t.id, &adminclient.MaintainModelParams{Wait: kit.Wait()}, body)
	case adminclient.MaintenanceScopeProvider:
		return api.MaintainProvider(ctx, t.id, &adminclient.MaintainProviderParams{Wait: kit.Wait()}, body)
	default:
		return api.MaintainSystem(ctx, &adminclient.MaintainSystemParams{Wait: kit.Wait()}, body)
	}
}

// openScope is the form that ends the maintenance of something.
func openScope(r *kit.Request) (*kit.Form, error) {
	t, err := targetOf(r)
	if err != nil {
		return nil, err
	}

	return &kit.Form{
		Title:   "Open " + t.name,
		Crumbs:  maintenanceCrumbs,
		Submit:  "End the maintenance",
		Back:    t.back,
		Command: t.command("open"),
		Effects: []string{"New requests are served again as soon as the proxies have applied the change."},
		Do: func(r *kit.Request, _ *kit.Input) (*kit.Page, error) {
			done, err := t.open(r.Context(), r.API)
			if err != nil {
				return nil, err
			}
			return kit.Go(t.back, kit.Applied("It is open.", done.Header))
		},
	}, nil
}

func (t *target) open(ctx context.Context, api *adminclient.Client) (*adminclient.Response[adminclient.Empty], error) {
	switch t.scope {
	case adminclient.MaintenanceScopeModel:
		return api.OpenModel(ctx, t.id, &adminclient.OpenModelParams{Wait: kit.Wait()})
	case adminclient.MaintenanceScopeProvider:
		return api.OpenProvider(ctx, t.id, &adminclient.OpenProviderParams{Wait: kit.Wait()})
	default:
		return api.OpenSystem(ctx, &adminclient.OpenSystemParams{Wait: kit.Wait()})
	}
}

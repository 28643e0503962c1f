package customerpages

import (
	"slices"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// grant is the form that grants a model to an account.
func grant(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	a := now.Value
	models, err := r.API.ListModels(r.Context(), &adminclient.ListModelsParams{Limit: new(maxModels)})
	if err != nil {
		return nil, err
	}

	granted, err := r.API.ListGrants(r.Context(), a.ID)
	if err != nil {
		return nil, err
	}

	field := kit.Field{
		Name:     "model",
		Label:    "Model",
		Kind:     "select",
		Required: true,
	}

	for _, m := range models.Value.Data {
		if m.Public != nil && !*m.Public && !slices.Contains(granted.Value.Models, m.ID) {
			field.Options = append(field.Options, kit.Option{Value: m.ID})
		}
	}

	back := kit.Path("accounts", a.ID, "models")
	effect := "The account may use the model as soon as the proxies have applied the change."
	if len(field.Options) == 0 {
		effect = "There is no model that is not public and not granted already."
	}

	return &kit.Form{
		Title:   "Grant a model to " + a.Name,
		Crumbs:  below(a),
		Submit:  "Grant model",
		Back:    back,
		Fields:  []kit.Field{field},
		Command: "gwctl models grant " + a.ID + " MODEL",
		Effects: []string{effect},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			model := in.Text("model")
			if model == "" {
				return nil, kit.Invalid("model", "must be chosen")
			}
			done, err := r.API.GrantModel(r.Context(), a.ID, model, &adminclient.GrantModelParams{Wait: kit.Wait()})
			if err != nil {
				return nil, err
			}
			return kit.Go(back, kit.Applied(model+" was granted.", done.Header))
		},
	}, nil
}

// withdraw is the form that withdraws the model of the query.
func withdraw(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	a, model := now.Value, r.Text("model")
	back := kit.Path("accounts", a.ID, "models")
	return &kit.Form{
		Title:   "Withdraw " + model,
		Crumbs:  below(a),
		Submit:  "Withdraw model",
		Danger:  true,
		Back:    back,
		Command: "gwctl models withdraw " + a.ID + " " + kit.Quote(model),
		Fields:  []kit.Field{{Name: "model", Kind: "hidden", Value: model}},
		Effects: []string{a.Name + " can no longer use " + model + ": its requests are refused with 404, unless the model is public."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			done, err := r.API.WithdrawModel(r.Context(), a.ID, in.Text("model"), &adminclient.WithdrawModelParams{Wait: kit.Wait()})
			if err != nil {
				return nil, err
			}
			return kit.Go(back, kit.Applied(in.Text("model")+" was withdrawn.", done.Header))
		},
	}, nil
}

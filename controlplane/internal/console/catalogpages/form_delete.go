package catalogpages

import (
	"fmt"
	"net/http"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// deletion is the form that removes an object of the catalog for good.
func deletion(
	kind, id, back string,
	crumbs []kit.Link,
	match string,
	effects []string,
	remove func(*kit.Request, *kit.Input) (http.Header, error),
) *kit.Form {
	return &kit.Form{
		Title:   "Delete the " + kind + " " + id,
		Crumbs:  crumbs,
		Submit:  "Delete " + kind,
		Danger:  true,
		Confirm: id,
		Back:    back,
		Match:   match,
		Effects: effects,
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			header, err := remove(r, in)
			if err != nil {
				return nil, err
			}
			if kind == "model" || kind == "provider" { // its page is gone
				back = "/console/" + kind + "s"
			}
			return kit.Go(back, kit.Applied("The "+kind+" "+id+" was deleted.", header))
		},
	}
}

// deleteProvider is the form that removes a provider that no route uses.
func deleteProvider(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetProvider(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	id := now.Value.ID
	models, err := r.API.ListModels(r.Context(), &adminclient.ListModelsParams{Limit: new(maxObjects)})
	if err != nil {
		return nil, err
	}

	var routes int64
	for _, m := range models.Value.Data {
		for _, route := range m.Routes {
			if route.Provider == id {
				routes++
			}
		}
	}

	effects := []string{
		"The stored secrets are deleted with it, and nobody can read them: " +
			number(int64(len(now.Value.Credentials)), "credential") + ".",
	}
	if routes > 0 {
		effects = append(
			effects,
			"It is refused as long as a route uses the provider. At present this is so: "+number(routes, "route")+". Delete them first.",
		)
	}

	form := deletion(
		"provider",
		id,
		kit.Path("providers", id),
		belowProvider(id),
		now.Header.Get("ETag"),
		effects,
		func(r *kit.Request, in *kit.Input) (http.Header, error) {
			done, err := r.API.DeleteProvider(r.Context(), id, &adminclient.DeleteProviderParams{Wait: kit.Wait(), IfMatch: in.Match()})
			if err != nil {
				return nil, err
			}
			return done.Header, nil
		},
	)
	form.Command = "gwctl providers delete " + kit.Quote(id)

	return form, nil
}

// deleteCredential is the form that removes a credential with its secret.
func deleteCredential(r *kit.Request) (*kit.Form, error) {
	id, credential := r.PathValue("id"), r.PathValue("credential")
	now, err := r.API.GetCredential(r.Context(), id, credential)
	if err != nil {
		return nil, err
	}

	provider, err := r.API.GetProvider(r.Context(), id)
	if err != nil {
		return nil, err
	}

	var others int64
	for _, c := range provider.Value.Credentials {
		if c.Name != credential && isSet(c.Enabled) {
			others++
		}
	}

	effects := []string{"The stored secret is deleted, and nobody can read it. To stop using it for a time, disable the credential."}
	if others == 0 {
		effects = append(effects, "No enabled credential is left: "+id+" can then serve no request.")
	} else {
		effects = append(effects, "Requests that begin afterwards use what is left: "+number(others, "enabled credential")+".")
	}

	back := kit.Path("providers", id)
	form := deletion(
		"credential",
		credential,
		back,
		belowProvider(id),
		now.Header.Get("ETag"),
		effects,
		func(r *kit.Request, in *kit.Input) (http.Header, error) {
			done, err := r.API.DeleteCredential(
				r.Context(),
				id,
				credential,
				&adminclient.DeleteCredentialParams{Wait: kit.Wait(), IfMatch: in.Match()},
			)
			if err != nil {
				return nil, err
			}
			return done.Header, nil
		},
	)
	form.Command = "gwctl credentials delete " + kit.Quote(id) + " " + kit.Quote(credential)

	return form, nil
}

// deleteRoute is the form that removes a route of a model.
func deleteRoute(r *kit.Request) (*kit.Form, error) {
	id, routeID := r.PathValue("id"), r.PathValue("route")
	now, err := r.API.GetRoute(r.Context(), id, routeID)
	if err != nil {
		return nil, err
	}

	model, err := r.API.GetModel(r.Context(), id)
	if err != nil {
		return nil, err
	}

	var others int64
	for _, route := range model.Value.Routes {
		if (route.ID == nil || *route.ID != routeID) && isSet(route.Enabled) {
			others++
		}
	}

	effect := "Requests that begin afterwards use what is left: " + number(others, "enabled route") + "."
	if others == 0 {
		effect = "No enabled route is left: every request for " + id + " is then refused."
	}

	form := deletion(
		"route",
		routeID,
		kit.Path("models", id),
		belowModel(id),
		now.Header.Get("ETag"),
		[]string{effect},
		func(r *kit.Request, in *kit.Input) (http.Header, error) {
			done, err := r.API.DeleteRoute(r.Context(), id, routeID, &adminclient.DeleteRouteParams{Wait: kit.Wait(), IfMatch: in.Match()})
			if err != nil {
				return nil, err
			}
			return done.Header, nil
		},
	)
	form.Command = "gwctl routes delete " + kit.Quote(id) + " " + kit.Quote(routeID)

	return form, nil
}

// usedDays is the time that the form of a deletion looks back.
const usedDays = 30

// deleteModel is the form that removes a model.
func deleteModel(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetModel(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	id := now.Value.ID
	from := time.Now().UTC().AddDate(0, 0, -usedDays).Format(time.DateOnly)
	all, err := r.API.GetUsageTotals(r.Context(), &adminclient.GetUsageTotalsParams{Model: &id, From: &from})
	if err != nil {
		return nil, err
	}

	each, err := r.API.GetUsageTotals(r.Context(), &adminclient.GetUsageTotalsParams{
		Model:   &id,
		From:    &from,
		GroupBy: []adminclient.UsageGroup{adminclient.UsageGroupAccount},
		Limit:   new(maxObjects),
	})
	if err != nil {
		return nil, err
	}

	used := fmt.Sprintf("Nobody has used it in the last %d days.", usedDays)
	if len(each.Value.Data) > 0 && len(all.Value.Data) > 0 {
		total, accounts := all.Value.Data[0], number(int64(len(each.Value.Data)), "account")
		if each.Value.NextCursor != nil {
			accounts = "more than " + accounts
		}
		used = fmt.Sprintf(
			"In the last %d days it had %s of %s, which cost %s %s.",
			usedDays,
			number(total.Requests, "request"),
			accounts,
			total.Cost,
			all.Value.Currency,
		)
	}

	form := deletion("model", id, kit.Path("models", id), belowModel(id), now.Header.Get("ETag"), []string{
		used,
		"New requests for it are refused with 404. Running requests continue.",
		"Deleted with it are its grants, its scheduled prices and " +
			number(int64(len(now.Value.Routes)), "route") + ". Usage and receipts are kept.",
	}, func(r *kit.Request, in *kit.Input) (http.Header, error) {
		done, err := r.API.DeleteModel(r.Context(), id, &adminclient.DeleteModelParams{Wait: kit.Wait(), IfMatch: in.Match()})
		if err != nil {
			return nil, err
		}
		return done.Header, nil
	})
	form.Command = "gwctl models delete " + kit.Quote(id)

	return form, nil
}

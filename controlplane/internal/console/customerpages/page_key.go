package customerpages

import (
	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

type keyView struct {
	*adminclient.Key
	Account *adminclient.Account
	// Project is nil for a key that is in none.
	Project *adminclient.Project
	// Bar shows the spend limit; empty without one.
	Bar []view.Part
	// Left is what the key may still spend, and Share the percentage that is spent or held; -1 without a limit.
	Left  string
	Share int
	// Limits are those that apply to the key: its own, and those of its project and its account.
	Limits *limitsView
	Usage  *adminclient.UsageList
	// Changes is nil for those who may not see the audit log.
	Changes *adminclient.AuditList
}

// showKey shows a key with its limit, its last requests and its changes.
func showKey(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.GetKey(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	k := answer.Value
	owner, err := r.API.GetAccount(r.Context(), k.AccountID)
	if err != nil {
		return nil, err
	}

	data := &keyView{Key: k, Account: owner.Value, Share: -1}
	if k.ProjectID != nil {
		in, err := r.API.GetProject(r.Context(), *k.ProjectID)
		if err != nil {
			return nil, err
		}
		data.Project = in.Value
	}
	if k.SpendLimit != nil {
		used := view.Add(k.Spent, k.Reserved)
		data.Left, data.Share = view.Sub(*k.SpendLimit, used), view.Share(used, *k.SpendLimit)
		data.Bar = view.Bar(
			view.Part{Kind: "spent", Name: "spent", Text: k.Spent}, view.Part{Kind: "held", Name: "held", Text: k.Reserved},
			view.Part{Kind: "rest", Name: "left", Text: data.Left},
		)
	}

	of := []ownedLimits{limitsOfKey(k)}
	if data.Project != nil {
		of = append(of, limitsOfProject(data.Project))
	}
	if data.Limits, err = limitSection(r, owner.Value, append(of, limitsOfAccount(owner.Value))); err != nil {
		return nil, err
	}
	data.Limits.None = "No limit that renews applies to the key."
	if data.Limits.MayChange && k.Status != adminclient.KeyStatusRevoked {
		data.Limits.Add = kit.Path("accounts", k.AccountID, "limits", "new") + "?" + kit.Query("key_id", k.ID)
	}

	usage, err := r.API.ListUsage(r.Context(), &adminclient.ListUsageParams{KeyID: &k.ID, Limit: new(10)})
	if err != nil {
		return nil, err
	}

	data.Usage = usage.Value
	if r.May(kit.Observe) {
		changes, err := r.API.ListAudit(r.Context(), &adminclient.ListAuditParams{Object: &k.ID, Limit: new(10)})
		if err != nil {
			return nil, err
		}
		if data.Changes, err = kit.Exact(changes); err != nil {
			return nil, err
		}
	}

	return &kit.Page{
		Template: "key",
		Title:    "Key " + k.Name,
		Crumbs:   keysOf(owner.Value),
		Command:  "gwctl keys get " + k.ID,
		Data:     data,
	}, nil
}

// keysOf returns the pages above a key.
func keysOf(a *adminclient.Account) []kit.Link {
	return append(below(a), kit.Link{Text: "Keys", URL: kit.Path("accounts", a.ID, "keys")})
}

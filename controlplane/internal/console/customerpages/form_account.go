package customerpages

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/controlplane/internal/console/kit"
)

var crumbs = []kit.Link{{Text: "Accounts", URL: "/console/accounts"}}

// accountFields are the fields of an account that can be set at any time.
func accountFields(a *adminclient.Account) []kit.Field {
	fields := []kit.Field{
		{Name: "name", Label: "Name", Required: true, Value: a.Name},
		{
			Name:  "max_concurrent_requests",
			Label: "Concurrent requests",
			Kind:  "number",
			Value: number(a.MaxConcurrentRequests),
			Hint:  "More requests at the same time are refused with 429.",
		},
		{Name: "max_open_video_jobs", Label: "Open video jobs", Kind: "number", Hint: "Empty means no limit of the account's own."},
		{
			Name:  "price_multiplier",
			Label: "Price multiplier",
			Mono:  true,
			Value: a.PriceMultiplier,
			Hint:  "The list price times this is charged: 0.85 is 15 % off.",
		},
		{
			Name:  "model_multipliers",
			Label: "Multipliers of single models",
			Kind:  "area",
			Rows:  3,
			Mono:  true,
			Value: pairs(a.ModelMultipliers, " "),
			Hint:  "One in a line: example-large 0.7. They take the place of the price multiplier.",
		},
		metadataField(a.Metadata),
		{
			Name:  "include_cost",
			Label: "Tell costs: all answers have their cost in their usage",
			Kind:  "check",
			Value: kit.Checked(a.IncludeCost),
		},
	}
	if a.MaxOpenVideoJobs != nil {
		fields[2].Value = strconv.Itoa(*a.MaxOpenVideoJobs)
	}

	return fields
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// pairs returns the members of an object, one in a line.
func pairs(of map[string]string, separator string) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		lines = append(lines, name+separator+of[name])
	}
	return strings.Join(lines, "\n")
}

func parseMetadata(text string) (*adminclient.Metadata, error) {
	all := adminclient.Metadata{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, kit.Invalid("metadata", "each line is a name and a value, such as plan=business")
		}
		all[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return &all, nil
}

// changedMetadata returns nil if nobody has changed the text of now: names and values may have what the text cannot, such as lines.
func changedMetadata(text string, now adminclient.Metadata) (*adminclient.Metadata, error) {
	if strings.ReplaceAll(text, "\r\n", "\n") == strings.TrimSpace(pairs(now, "=")) {
		return nil, nil //nolint:nilnil // it stays as it is
	}
	return parseMetadata(text)
}

func metadataField(now adminclient.Metadata) kit.Field {
	return kit.Field{
		Name:  "metadata",
		Label: "Data of your own",
		Kind:  "area",
		Rows:  2,
		Mono:  true,
		Value: pairs(now, "="),
		Hint:  "One in a line: plan=business. The gateway only keeps it.",
	}
}

func parseMultipliers(text string) (*adminclient.ModelMultipliers, error) {
	all := adminclient.ModelMultipliers{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch len(words) {
		case 0:
		case 2:
			all[words[0]] = words[1]
		default:
			return nil, kit.Invalid("model_multipliers", "each line is a model and a multiplier, such as example-large 0.7")
		}
	}
	return &all, nil
}

// newAccount is the form that creates an account.
func newAccount(*kit.Request) (*kit.Form, error) {
	fields := accountFields(&adminclient.Account{})
	external := kit.Field{
		Name:  "external_id",
		Label: "External id",
		Mono:  true,
		Hint:  "The account's id in your own systems. It cannot be changed.",
	}

	return &kit.Form{
		Title:   "Create an account",
		Crumbs:  crumbs,
		Submit:  "Create account",
		Back:    "/console/accounts",
		Command: "gwctl accounts create",
		Fields:  slices.Insert(fields, 1, external),
		Effects: []string{"The account begins without money and without keys: it can make requests after a payment and with a key."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			body := adminclient.AccountCreate{
				Name:            in.Text("name"),
				ExternalID:      in.Optional("external_id"),
				PriceMultiplier: in.Optional("price_multiplier"),
				IncludeCost:     new(in.Checked("include_cost")),
			}
			var err error
			if body.MaxConcurrentRequests, err = small(in, "max_concurrent_requests"); err != nil {
				return nil, err
			}
			if body.MaxOpenVideoJobs, err = small(in, "max_open_video_jobs"); err != nil {
				return nil, err
			}
			if body.ModelMultipliers, err = parseMultipliers(in.Text("model_multipliers")); err != nil {
				return nil, err
			}
			if body.Metadata, err = parseMetadata(in.Text("metadata")); err != nil {
				return nil, err
			}

			made, err := r.API.CreateAccount(r.Context(), &adminclient.CreateAccountParams{IdempotencyKey: in.Key()}, body)
			if err != nil {
				return nil, err
			}

			return kit.Go(kit.Path("accounts", made.Value.ID), kit.Done("The account was created."))
		},
	}, nil
}

func small(in *kit.Input, name string) (*int, error) {
	n, err := in.Int(name)
	if n == nil || err != nil {
		return nil, err
	}
	return new(int(*n)), nil
}

// editAccount is the form that changes an account.
func editAccount(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	a := now.Value
	back := kit.Path("accounts", a.ID)
	return &kit.Form{
		Title:   "Change " + a.Name,
		Crumbs:  append(slices.Clip(crumbs), kit.Link{Text: a.Name, URL: back}),
		Submit:  "Save",
		Back:    back,
		Command: "gwctl accounts update " + a.ID,
		Match:   now.Header.Get("ETag"),
		Fields:  accountFields(a),
		Effects: []string{"Requests that begin afterwards are admitted and charged by the new values. Running requests keep the old ones."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			patch := adminclient.AccountPatch{
				Name:             in.Optional("name"),
				PriceMultiplier:  in.Optional("price_multiplier"),
				MaxOpenVideoJobs: optional.Null[int](),
				IncludeCost:      new(in.Checked("include_cost")),
			}
			if patch.MaxConcurrentRequests, err = small(in, "max_concurrent_requests"); err != nil {
				return nil, err
			}

			if jobs, err := small(in, "max_open_video_jobs"); err != nil {
				return nil, err
			} else if jobs != nil {
				patch.MaxOpenVideoJobs = optional.Of(*jobs)
			}

			if patch.ModelMultipliers, err = parseMultipliers(in.Text("model_multipliers")); err != nil {
				return nil, err
			}
			if patch.Metadata, err = changedMetadata(in.Text("metadata"), a.Metadata); err != nil {
				return nil, err
			}

			done, err := r.API.UpdateAccount(
				r.Context(),
				a.ID,
				&adminclient.UpdateAccountParams{Wait: kit.Wait(), IfMatch: in.Match()},
				patch,
			)
			if err != nil {
				return nil, err
			}

			return kit.Go(back, kit.Applied("The account was saved.", done.Header))
		},
	}, nil
}

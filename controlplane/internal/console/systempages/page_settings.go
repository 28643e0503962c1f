package systempages

import (
	"strconv"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// showSettings shows the settings of the whole system.
func showSettings(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.GetSettings(r.Context())
	if err != nil {
		return nil, err
	}
	return &kit.Page{
		Template: "settings",
		Title:    "Settings",
		Command:  "gwctl settings get",
		Data:     answer.Value,
	}, nil
}

// editSettings is the form that changes them.
func editSettings(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetSettings(r.Context())
	if err != nil {
		return nil, err
	}

	tokens := ""
	if n := now.Value.ImageInputTokens; n != nil && *n > 0 {
		tokens = strconv.FormatInt(*n, 10)
	}

	return &kit.Form{
		Title:   "Change the settings",
		Crumbs:  []kit.Link{{Text: "Settings", URL: "/console/settings"}},
		Submit:  "Save",
		Back:    "/console/settings",
		Command: "gwctl settings put",
		Match:   now.Header.Get("ETag"),
		Fields: []kit.Field{
			{
				Name:     "currency",
				Label:    "Currency",
				Mono:     true,
				Required: true,
				Value:    now.Value.Currency,
				Hint:     "The ISO code of the currency of all prices.",
			},
			{
				Name:  "image_input_tokens",
				Label: "Tokens of an image",
				Kind:  "number",
				Value: tokens,
				Hint:  "The estimate for an image in a prompt. Empty means the default.",
			},
		},
		Effects: []string{"Requests that begin afterwards are reserved for by the new estimate."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			body := adminclient.Settings{Currency: in.Text("currency")}
			if body.ImageInputTokens, err = in.Int("image_input_tokens"); err != nil {
				return nil, err
			}
			done, err := r.API.PutSettings(r.Context(), &adminclient.PutSettingsParams{Wait: kit.Wait(), IfMatch: in.Match()}, body)
			if err != nil {
				return nil, err
			}
			return kit.Go("/console/settings", kit.Applied("The settings were saved.", done.Header))
		},
	}, nil
}

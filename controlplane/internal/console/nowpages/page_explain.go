package nowpages

import (
	"strconv"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// explainView is the form and, if it was sent, the explanation.
type explainView struct {
	AccountID, KeyID, Model, Format, Stream, MaxTokens, N, InputTokens, Parameters string
	Formats                                                                        []string
	Result                                                                         *adminclient.RequestExplanation
	Account, Key                                                                   string
	// Hidden says that the account does not see the model, and why.
	Hidden string
}

// explainRequest asks what would happen to a request now.
func explainRequest(r *kit.Request) (*kit.Page, error) {
	v := &explainView{
		AccountID:   r.Text("account_id"),
		KeyID:       r.Text("key_id"),
		Model:       r.Text("model"),
		Format:      r.Text("format"),
		Stream:      r.Text("stream"),
		MaxTokens:   r.Text("max_tokens"),
		N:           r.Text("n"),
		InputTokens: r.Text("input_tokens"),
		Parameters:  r.Text("parameters"),
		Formats:     []string{"chat", "responses", "messages", "images", "videos"},
	}

	page := &kit.Page{
		Template: "explain",
		Title:    "Explain a request",
		Data:     v,
		Command: kit.Command(
			"usage explain",
			"--account-id",
			v.AccountID,
			"--key-id",
			v.KeyID,
			"--model",
			v.Model,
			"--format",
			v.Format,
			"--stream",
			v.Stream,
			"--max-tokens",
			v.MaxTokens,
			"--n",
			v.N,
			"--input-tokens",
			v.InputTokens,
			"--parameters",
			v.Parameters,
		),
	}
	if v.Model == "" || v.AccountID+v.KeyID == "" {
		return page, nil
	}

	params := &adminclient.ExplainRequestParams{
		AccountID:  kit.Optional(v.AccountID),
		KeyID:      kit.Optional(v.KeyID),
		Model:      v.Model,
		Parameters: kit.Optional(v.Parameters),
	}
	if v.Format != "" {
		params.Format = new(adminclient.ExplainRequestParamsFormat(v.Format))
	}
	if v.Stream != "" {
		params.Stream = new(v.Stream == "true")
	}

	for _, number := range []struct {
		name, text string
		to         **int64
	}{{"max_tokens", v.MaxTokens, &params.MaxTokens}, {"n", v.N, &params.N}, {"input_tokens", v.InputTokens, &params.InputTokens}} {
		if number.text == "" {
			continue
		}
		n, err := strconv.ParseInt(number.text, 10, 64)
		if err != nil {
			return nil, kit.Invalid(number.name, "must be a whole number")
		}
		*number.to = &n
	}

	answer, err := r.API.ExplainRequest(r.Context(), params)
	if err != nil {
		return nil, err
	}

	v.Result, v.Hidden = answer.Value, hidden(&answer.Value.Visibility)
	ids := []string{v.Result.AccountID}
	if v.Result.KeyID != nil {
		ids = append(ids, *v.Result.KeyID)
	}

	names, err := kit.Names(r, ids)
	if err != nil {
		return nil, err
	}

	v.Account = names[v.Result.AccountID]
	if v.Result.KeyID != nil {
		v.Key = names[*v.Result.KeyID]
	}

	return page, nil
}

// hidden says why an account does not see a model for a format; empty if it sees it.
func hidden(v *adminclient.ModelVisibility) string {
	switch {
	case !v.Exists:
		return "There is no model of this name."
	case !v.Enabled:
		return "The model is disabled."
	case !v.Public && !v.Granted:
		return "The model is not public, and it is not granted to the account."
	case !v.SupportsFormat:
		return "No route of the model supports this format."
	default:
		return ""
	}
}

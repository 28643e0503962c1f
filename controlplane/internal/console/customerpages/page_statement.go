package customerpages

import (
	"fmt"
	"io"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

type statementView struct {
	*head
	*adminclient.Statement
	Month string
	// Earlier and Later are the addresses of the months beside it; Later is empty for the present one.
	Earlier, Later, CSV string
	// Last is the last day, which is included.
	Last string
	// Names are the names of keys by their ids.
	Names map[string]string
}

const monthLayout = "2006-01"

// accountStatement shows the statement of a month, by default the present one.
func accountStatement(r *kit.Request) (*kit.Page, error) {
	h, err := account(r, "statement")
	if err != nil {
		return nil, err
	}

	now := time.Now().UTC()
	month := r.Text("month")
	if month == "" {
		month = now.Format(monthLayout)
	}

	begin, err := time.Parse(monthLayout, month)
	if err != nil {
		return nil, kit.Invalid("month", "must be a month such as 2026-10")
	}

	params := &adminclient.GetStatementParams{
		Month:   &month,
		GroupBy: []adminclient.UsageGroup{adminclient.UsageGroupKey, adminclient.UsageGroupModel},
	}
	if r.Text("format") == "csv" {
		return statementFile(r, h, month)
	}

	answer, err := r.API.GetStatement(r.Context(), h.ID, params)
	if err != nil {
		return nil, err
	}

	data := &statementView{
		head:      h,
		Statement: answer.Value,
		Month:     month,
		Last:      begin.AddDate(0, 1, -1).Format(time.DateOnly),
		Earlier:   kit.With(r.URL, "month", begin.AddDate(0, -1, 0).Format(monthLayout)),
		CSV:       kit.With(r.URL, "month", month, "format", "csv"),
	}
	if data.Names, err = names(r, answer.Value.UsageLines); err != nil {
		return nil, err
	}
	if later := begin.AddDate(0, 1, 0); !later.After(now) {
		data.Later = kit.With(r.URL, "month", later.Format(monthLayout))
	}

	return h.page("account_statement", "Statement", kit.Command("statements get "+h.ID, "--month", month), data), nil
}

func statementFile(r *kit.Request, h *head, month string) (*kit.Page, error) {
	answer, err := r.API.GetStatement(r.Context(), h.ID, &adminclient.GetStatementParams{Month: &month, Accept: new("text/csv")})
	if err != nil {
		return nil, err
	}
	return &kit.Page{Download: &kit.Download{
		Name: "statement-" + h.ID + "-" + month + ".csv", MediaType: "text/csv; charset=utf-8",
		CopyTo: func(w io.Writer) error {
			if _, err := w.Write(answer.Body); err != nil {
				return fmt.Errorf("send a statement: %w", err)
			}
			return nil
		},
	}}, nil
}

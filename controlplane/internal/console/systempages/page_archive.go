package systempages

import (
	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

type archiveView struct {
	List  *adminclient.UsageMonthList
	Pages kit.Pages
}

// listMonths shows the closed months of usage.
func listMonths(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.ListUsageMonths(r.Context(), &adminclient.ListUsageMonthsParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)})
	if err != nil {
		return nil, err
	}
	data := &archiveView{answer.Value, kit.PagesOf(r, answer.Value.NextCursor)}
	return &kit.Page{
		Template: "archive",
		Title:    "Archive",
		Command:  "gwctl usage-months list",
		Data:     data,
	}, nil
}

// markExported is the form that says that a month was exported by other means.
func markExported(r *kit.Request) (*kit.Form, error) {
	month := r.PathValue("month")
	return &kit.Form{
		Title:   "Mark " + month + " as exported",
		Crumbs:  []kit.Link{{Text: "Archive", URL: "/console/archive"}},
		Submit:  "Mark as exported",
		Danger:  true,
		Confirm: month,
		Back:    "/console/archive",
		Command: "gwctl usage-months mark-exported " + month,
		Effects: []string{
			"The month counts as exported, so that its records can be dropped when their retention is over. They cannot be brought " +
				"back from this system then.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			if _, err := r.API.MarkUsageMonthExported(
				r.Context(),
				month,
				&adminclient.MarkUsageMonthExportedParams{IdempotencyKey: in.Key()},
			); err != nil {
				return nil, err
			}
			return kit.Go("/console/archive", kit.Done("The month "+month+" counts as exported."))
		},
	}, nil
}

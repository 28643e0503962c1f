package accountstore

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/search"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
)

// Search finds objects.
type Search struct{ db *postgres.DB }

// NewSearch returns a store that uses db.
func NewSearch(db *postgres.DB) *Search { return &Search{db} }

func (s *Search) ByText(ctx context.Context, text string) ([]search.Result, error) {
	q := s.db.PlannedQueries()
	part, exact := postgres.Beginning(strings.ToLower(text)), postgres.Beginning(text)
	accounts, err1 := q.SearchAccounts(ctx, sqlcgen.SearchAccountsParams{Part: part, ExactPart: &exact, RowLimit: search.PerType})

	keys, err2 := q.SearchKeys(ctx, sqlcgen.SearchKeysParams{
		Part:      part,
		ExactPart: &exact,
		Hint:      text,
		RowLimit:  search.PerType,
	})

	projects, err6 := q.SearchProjects(ctx, sqlcgen.SearchProjectsParams{Part: part, ExactPart: &exact, RowLimit: search.PerType})

	requests, err3 := q.SearchRequests(ctx, sqlcgen.SearchRequestsParams{ProviderRequestID: text, RowLimit: search.PerType})
	models, err4 := q.SearchModels(ctx, sqlcgen.SearchModelsParams{Inside: strings.ToLower(text), RowLimit: search.PerType})
	providers, err5 := q.SearchProviders(ctx, sqlcgen.SearchProvidersParams{Inside: strings.ToLower(text), RowLimit: search.PerType})
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return nil, postgres.Translate("search", err)
	}

	var found []search.Result
	for _, r := range accounts {
		found = append(found, accountResult(r.ID, r.Name, r.ExternalID))
	}

	for _, r := range keys {
		found = append(found, keyResult(r.ID, r.AccountID, r.Name, r.ExternalID))
	}

	for _, r := range projects {
		found = append(found, projectResult(r.ID, r.AccountID, r.Name, r.ExternalID))
	}

	more, err := inside(ctx, q, text, len(accounts), len(keys), len(projects))
	if err != nil {
		return nil, postgres.Translate("search", err)
	}
	for _, r := range more {
		if !slices.Contains(found, r) {
			found = append(found, r)
		}
	}
	slices.SortStableFunc(found, func(a, b search.Result) int { return strings.Compare(string(a.Type), string(b.Type)) })

	for _, r := range requests {
		found = append(found, requestResult(r.RequestID, r.AccountID, r.Model))
	}

	for _, id := range models {
		found = append(found, search.Result{Type: search.Model, ID: id})
	}

	for _, id := range providers {
		found = append(found, search.Result{Type: search.Provider, ID: id})
	}

	return found, nil
}

// endingOfID is a text that may be the ending of an id, and is long enough not to fit many.
var endingOfID = regexp.MustCompile(`^[0-9a-f]{4,12}$`)

// inside finds what a text does not begin: accounts by the reference of a payment, accounts, keys and projects by the middle of their
// names, as far as their beginnings have left room, and new requests by the ending of their ids.
func inside(ctx context.Context, q *sqlcgen.Queries, text string, accounts, keys, projects int) (found []search.Result, err error) {
	paid, err := q.SearchReference(ctx, sqlcgen.SearchReferenceParams{Reference: text, RowLimit: search.PerType})
	for _, r := range paid {
		found = append(found, accountResult(r.ID, r.Name, r.ExternalID))
	}

	within := utf8.RuneCountInString(text) >= search.ShortestInside
	if room := search.PerType - accounts - len(paid); err == nil && within && room > 0 {
		var rows []sqlcgen.SearchInsideAccountsRow
		rows, err = q.SearchInsideAccounts(ctx, sqlcgen.SearchInsideAccountsParams{Inside: strings.ToLower(text), RowLimit: search.PerType})
		for _, r := range rows[:min(len(rows), room+accounts)] {
			found = append(found, accountResult(r.ID, r.Name, r.ExternalID))
		}
	}

	if err == nil && within && keys < search.PerType {
		var rows []sqlcgen.SearchInsideKeysRow
		rows, err = q.SearchInsideKeys(ctx, sqlcgen.SearchInsideKeysParams{Inside: strings.ToLower(text), RowLimit: search.PerType})
		for _, r := range rows {
			found = append(found, keyResult(r.ID, r.AccountID, r.Name, r.ExternalID))
		}
	}

	if err == nil && within && projects < search.PerType {
		var rows []sqlcgen.SearchInsideProjectsRow
		rows, err = q.SearchInsideProjects(ctx, sqlcgen.SearchInsideProjectsParams{Inside: strings.ToLower(text), RowLimit: search.PerType})
		for _, r := range rows {
			found = append(found, projectResult(r.ID, r.AccountID, r.Name, r.ExternalID))
		}
	}

	if err == nil && endingOfID.MatchString(text) {
		var rows []sqlcgen.SearchRequestEndingsRow
		rows, err = q.SearchRequestEndings(ctx, sqlcgen.SearchRequestEndingsParams{Ending: text, RowLimit: search.PerType})
		for _, r := range rows {
			found = append(found, requestResult(r.RequestID, r.AccountID, r.Model))
		}
	}

	return found, err
}

func (s *Search) ByID(ctx context.Context, r search.Range) (found []search.Result, err error) {
	q := s.db.PlannedQueries()
	switch r.Type {
	case search.Account:
		rows, failed := q.AccountsInRange(
			ctx,
			sqlcgen.AccountsInRangeParams{Lowest: r.Lowest, Highest: r.Highest, RowLimit: search.PerType},
		)
		for _, row := range rows {
			found = append(found, accountResult(row.ID, row.Name, row.ExternalID))
		}
		err = failed
	case search.Key:
		rows, failed := q.KeysInRange(ctx, sqlcgen.KeysInRangeParams{Lowest: r.Lowest, Highest: r.Highest, RowLimit: search.PerType})
		for _, row := range rows {
			found = append(found, keyResult(row.ID, row.AccountID, row.Name, row.ExternalID))
		}
		err = failed
	case search.Project:
		within := sqlcgen.ProjectsInRangeParams{Lowest: r.Lowest, Highest: r.Highest, RowLimit: search.PerType}
		rows, failed := q.ProjectsInRange(ctx, within)
		for _, row := range rows {
			found = append(found, projectResult(row.ID, row.AccountID, row.Name, row.ExternalID))
		}
		err = failed
	case search.Request:
		rows, failed := q.RequestsInRange(
			ctx,
			sqlcgen.RequestsInRangeParams{Lowest: r.Lowest, Highest: r.Highest, RowLimit: search.PerType},
		)
		for _, row := range rows {
			found = append(found, requestResult(row.RequestID, row.AccountID, row.Model))
		}
		err = failed
	case search.Video:
		rows, failed := q.VideoJobsInRange(
			ctx,
			sqlcgen.VideoJobsInRangeParams{Lowest: r.Lowest, Highest: r.Highest, RowLimit: search.PerType},
		)
		for _, row := range rows {
			found = append(
				found,
				search.Result{Type: search.Video, ID: ident.Video.Format(row.ID), AccountID: ident.Account.Format(row.AccountID)},
			)
		}
		err = failed
	default:
		return nil, nil
	}

	return found, postgres.Translate("search by id", err)
}

func (s *Search) ByHash(ctx context.Context, hashes []apikey.Hash) (found []search.Result, err error) {
	raw := make([][]byte, len(hashes))
	for i := range hashes {
		raw[i] = hashes[i][:]
	}
	rows, err := s.db.Queries().KeysByHash(ctx, sqlcgen.KeysByHashParams{Hashes: raw, RowLimit: search.PerType})
	for _, r := range rows {
		found = append(found, keyResult(r.ID, r.AccountID, r.Name, r.ExternalID))
	}
	return found, postgres.Translate("search a key", err)
}

func accountResult(id ident.UUID, name, external string) search.Result {
	text := ident.Account.Format(id)
	return search.Result{
		Type:       search.Account,
		ID:         text,
		AccountID:  text,
		Name:       name,
		ExternalID: external,
	}
}

func keyResult(id, owner ident.UUID, name, external string) search.Result {
	return search.Result{
		Type:       search.Key,
		ID:         ident.Key.Format(id),
		AccountID:  ident.Account.Format(owner),
		Name:       name,
		ExternalID: external,
	}
}

func projectResult(id, owner ident.UUID, name, external string) search.Result {
	return search.Result{
		Type:       search.Project,
		ID:         ident.Project.Format(id),
		AccountID:  ident.Account.Format(owner),
		Name:       name,
		ExternalID: external,
	}
}

func requestResult(id, owner ident.UUID, model string) search.Result {
	return search.Result{
		Type:      search.Request,
		ID:        ident.Request.Format(id),
		AccountID: ident.Account.Format(owner),
		Name:      model,
	}
}

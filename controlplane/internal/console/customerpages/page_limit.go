package customerpages

import (
	"cmp"
	"fmt"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

// limitLine is a limit with the figures of its current window.
type limitLine struct {
	*adminclient.SpendLimit
	// Title is the name of the limit, or that of its windows.
	Title string
	// Owner is whose limit it is.
	Owner kit.Link
	// InForce is the amount now, which a raise may have changed. Spent, Reserved and Left are those of the current window.
	InForce, Spent, Reserved, Left string
	// Bar has no parts if no request has needed the current window yet.
	Bar []view.Part
	// Share is the percentage that is spent or reserved; -1 of the amount 0, of which nothing is ever left.
	Share int
}

// Full reports whether nothing is left.
func (l *limitLine) Full() bool { return view.Compare(l.Left, "0") <= 0 }

// Period says what the windows of the limit are.
func (l *limitLine) Period() string {
	if zone := l.Window.TimeZone; zone != nil {
		return windowName(&l.Window) + ", " + *zone
	}
	return windowName(&l.Window)
}

func windowName(w *adminclient.LimitPeriod) string {
	switch w.Period {
	case adminclient.LimitPeriodPeriodForever:
		return "for ever"
	case adminclient.LimitPeriodPeriodFixed:
		return "each " + lengthText(w.LengthSeconds)
	case adminclient.LimitPeriodPeriodFirstUse:
		return lengthText(w.LengthSeconds) + " from the first use"
	default:
		return string(w.Period)
	}
}

func lengthText(seconds *int64) string {
	const hour, day = 3600, 24 * 3600
	if seconds == nil {
		return ""
	}
	switch n := *seconds; {
	case n%day == 0 && n > day:
		return fmt.Sprintf("%d days", n/day)
	case n == hour:
		return "1 hour"
	case n%hour == 0:
		return fmt.Sprintf("%d hours", n/hour)
	default:
		return fmt.Sprintf("%d min", (n+59)/60)
	}
}

func newLimitLine(l *adminclient.SpendLimit, owner kit.Link) limitLine {
	line := limitLine{
		SpendLimit: l,
		Title:      windowName(&l.Window),
		Owner:      owner,
		InForce:    l.Amount,
		Spent:      "0.00",
		Reserved:   "0.00",
	}
	if l.Name != nil {
		line.Title = *l.Name
	}
	if l.RaisedTo != nil {
		line.InForce = *l.RaisedTo
	}
	line.Left = line.InForce
	if w := l.Current; w != nil {
		line.InForce, line.Spent, line.Reserved, line.Left = w.Amount, w.Spent, w.Reserved, w.Left
		used := "spent"
		if line.Full() {
			used = "bad"
		}
		line.Bar = view.Bar(
			view.Part{Kind: used, Name: "spent", Text: w.Spent},
			view.Part{Kind: "held", Name: "reserved", Text: w.Reserved},
			view.Part{Kind: "rest", Name: "left", Text: w.Left},
		)
	}
	line.Share = view.Share(view.Add(line.Spent, line.Reserved), line.InForce)
	return line
}

// limitsView is the section of limits on a page.
type limitsView struct {
	Lines    []limitLine
	Currency string
	// Add is the address of the form that adds one; empty for those who may not.
	Add string
	// None is shown without any.
	None string
	// All is the address of a page with further limits; empty for none.
	All string
	// MayChange is set if the person may change limits.
	MayChange bool
}

// limitSection returns the limits that are found with each of the queries, those of one owner after those of another.
func limitSection(r *kit.Request, a *adminclient.Account, of []ownedLimits) (*limitsView, error) {
	v := &limitsView{Currency: a.Balance.Currency, MayChange: r.May(kit.Cabinet)}
	for _, o := range of {
		o.query.Limit = new(kit.PageSize) // there are 7 at most
		found, err := r.API.ListLimits(r.Context(), a.ID, &o.query)
		if err != nil {
			return nil, err
		}
		for i := range found.Value.Data {
			v.Lines = append(v.Lines, newLimitLine(&found.Value.Data[i], o.owner))
		}
	}
	return v, nil
}

// ownedLimits selects the limits of one owner.
type ownedLimits struct {
	owner kit.Link
	query adminclient.ListLimitsParams
}

func limitsOfAccount(a *adminclient.Account) ownedLimits {
	return ownedLimits{
		kit.Link{Text: "account " + a.Name, URL: kit.Path("accounts", a.ID)},
		adminclient.ListLimitsParams{Scope: new(adminclient.LimitScopeAccount)},
	}
}

func limitsOfProject(p *adminclient.Project) ownedLimits {
	return ownedLimits{
		kit.Link{Text: "project " + p.Name, URL: kit.Path("projects", p.ID)},
		adminclient.ListLimitsParams{ProjectID: &p.ID},
	}
}

func limitsOfKey(k *adminclient.Key) ownedLimits {
	return ownedLimits{kit.Link{Text: "key " + k.Name, URL: kit.Path("keys", k.ID)}, adminclient.ListLimitsParams{KeyID: &k.ID}}
}

type accountLimitsView struct {
	*head
	Limits *limitsView
	Pages  kit.Pages
}

// accountLimits shows the limits of an account, of its projects and of its keys.
func accountLimits(r *kit.Request) (*kit.Page, error) {
	h, err := account(r, "limits")
	if err != nil {
		return nil, err
	}
	found, err := r.API.ListLimits(r.Context(), h.ID, &adminclient.ListLimitsParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)})
	if err != nil {
		return nil, err
	}

	var ids []string
	for i := range found.Value.Data {
		if id := ownerID(&found.Value.Data[i]); id != h.ID {
			ids = append(ids, id)
		}
	}
	names, err := kit.Names(r, ids)
	if err != nil {
		return nil, err
	}
	names[h.ID] = h.Name

	v := &limitsView{
		Currency:  h.Balance.Currency,
		MayChange: r.May(kit.Cabinet),
		None:      "The account, its projects and its keys have no limit that renews.",
	}
	if v.MayChange {
		v.Add = kit.Path("accounts", h.ID, "limits", "new")
	}
	for i := range found.Value.Data {
		l := &found.Value.Data[i]
		v.Lines = append(v.Lines, newLimitLine(l, ownerLink(l, names[ownerID(l)])))
	}
	data := &accountLimitsView{h, v, kit.PagesOf(r, found.Value.NextCursor)}
	return h.page("account_limits", "Limits", "gwctl limits list "+h.ID, data), nil
}

// ownerID returns the id of the key, project or account that a limit is of.
func ownerID(l *adminclient.SpendLimit) string {
	switch {
	case l.KeyID != nil:
		return *l.KeyID
	case l.ProjectID != nil:
		return *l.ProjectID
	default:
		return l.AccountID
	}
}

// ownerLink returns whose limit it is. The name may be empty.
func ownerLink(l *adminclient.SpendLimit, name string) kit.Link {
	id := ownerID(l)
	noun, page := "account", "accounts"
	switch {
	case l.KeyID != nil:
		noun, page = "key", "keys"
	case l.ProjectID != nil:
		noun, page = "project", "projects"
	}
	return kit.Link{Text: noun + " " + cmp.Or(name, view.ShortID(id)), URL: kit.Path(page, id)}
}

type limitView struct {
	limitLine
	Currency string
	Windows  []adminclient.LimitWindow
	Pages    kit.Pages
	// Changes is nil for those who may not see the audit log.
	Changes *adminclient.AuditList
}

// showLimit shows a limit with its current window, those before, and its changes.
func showLimit(r *kit.Request) (*kit.Page, error) {
	line, owner, _, err := limitOf(r)
	if err != nil {
		return nil, err
	}

	data := &limitView{limitLine: *line, Currency: owner.Balance.Currency}
	windows, err := r.API.ListLimitWindows(
		r.Context(),
		line.ID,
		&adminclient.ListLimitWindowsParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)},
	)
	if err != nil {
		return nil, err
	}
	data.Windows, data.Pages = windows.Value.Data, kit.PagesOf(r, windows.Value.NextCursor)
	if r.May(kit.Observe) {
		changes, err := r.API.ListAudit(r.Context(), &adminclient.ListAuditParams{Object: &line.ID, Limit: new(10)})
		if err != nil {
			return nil, err
		}
		if data.Changes, err = kit.Exact(changes); err != nil {
			return nil, err
		}
	}

	return &kit.Page{
		Template: "limit",
		Title:    "Limit " + line.Title,
		Crumbs:   limitsAbove(owner),
		Command:  "gwctl limits get " + line.ID + "\ngwctl limit-windows list " + line.ID,
		Data:     data,
	}, nil
}

// limitsAbove returns the pages above a limit.
func limitsAbove(a *adminclient.Account) []kit.Link {
	return append(below(a), kit.Link{Text: "Limits", URL: kit.Path("accounts", a.ID, "limits")})
}

// limitOf reads the limit that the address names, and its account.
func limitOf(r *kit.Request) (line *limitLine, a *adminclient.Account, match string, err error) {
	now, err := r.API.GetLimit(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, nil, "", err
	}
	l := now.Value
	owner, err := r.API.GetAccount(r.Context(), l.AccountID)
	if err != nil {
		return nil, nil, "", err
	}
	names, err := kit.Names(r, []string{ownerID(l)})
	if err != nil {
		return nil, nil, "", err
	}
	return new(newLimitLine(l, ownerLink(l, names[ownerID(l)]))), owner.Value, now.Header.Get("ETag"), nil
}

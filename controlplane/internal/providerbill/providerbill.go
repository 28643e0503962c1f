package providerbill

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // images have no zone files

	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

var (
	// ErrNotFound is returned for a bill or a difference that does not exist.
	ErrNotFound = errors.New("providerbill: no such bill")
	// ErrImported is returned for a file that was imported with other options.
	ErrImported = errors.New("providerbill: the file is imported with other options")
	// ErrBusy is returned while another file is imported.
	ErrBusy = errors.New("providerbill: another file is imported")
	// ErrTooLarge is returned for a file of more than MaxFile bytes.
	ErrTooLarge = errors.New("providerbill: the file is too large")
	// ErrRecordsDropped is returned for a bill of days of which no usage records are kept.
	ErrRecordsDropped = errors.New("providerbill: the usage records of the bill's days are not kept any more")
)

// Options say what a file is about.
type Options struct {
	// Name is that of the file, to be recognised by people.
	Name string
	// Provider is the provider whose requests are compared.
	Provider string
	// Format, if it is set, is what the file must be.
	Format Format
	// Credential is the gateway's credential that all lines are about, or pairs NAME=CREDENTIAL, separated by commas, of the bill's
	// names and the gateway's. Empty if the bill has the gateway's names, or is about all.
	Credential string
	// TimeZone is the zone of days, and of times without one.
	TimeZone string
}

// Bill is a bill that was imported.
type Bill struct {
	Options
	Content
	ID         ident.UUID
	ImportedAt time.Time
	ImportedBy string
	// AcceptedAt is nil until somebody has accepted what is open, for a reason.
	AcceptedAt             *time.Time
	AcceptedBy, AcceptedAs string
	// ComparedAt is nil until the bill was compared; then the others are of its comparison, without its differences.
	ComparedAt *time.Time
	Comparison Comparison
	OpenAmount money.Nano
}

// SettleTime is how long after the import differences may be open without an alert.
const SettleTime = 48 * time.Hour

// State says what has to be done about a bill.
type State string

// The states.
const (
	// Comparing bills were not compared yet.
	Comparing State = "comparing"
	// Explained bills have at most 0.1 % open.
	Explained State = "explained"
	// OpenDifferences are of bills with more; after SettleTime they are Overdue.
	OpenDifferences State = "open"
	Overdue         State = "overdue"
	// Accepted bills have open differences that somebody has accepted.
	Accepted State = "accepted"
)

// State returns the state at a time.
func (b *Bill) State(now time.Time) State {
	switch {
	case b.AcceptedAt != nil:
		return Accepted
	case b.ComparedAt == nil:
		return Comparing
	case !TooMuchOpen(b.OpenAmount, b.Comparison.Billed, b.Comparison.Recorded):
		return Explained
	case now.Sub(b.ImportedAt) > SettleTime:
		return Overdue
	}
	return OpenDifferences
}

// single returns the gateway's credential that all of the bill is about; empty if there is none.
func (b *Bill) single() string {
	if strings.Contains(b.Options.Credential, "=") {
		return ""
	}
	return b.Options.Credential
}

// credentials returns the gateway's credentials that the options name.
func (o *Options) credentials() (names []string) {
	for pair := range strings.SplitSeq(o.Credential, ",") {
		from, to, isPair := strings.Cut(strings.TrimSpace(pair), "=")
		switch {
		case isPair:
			names = append(names, to)
		case from != "":
			return []string{o.Credential}
		}
	}
	return names
}

// credential returns the gateway's name for a name of the bill.
func (b *Bill) credential(name string) string {
	if single := b.single(); single != "" {
		return single
	}
	for pair := range strings.SplitSeq(b.Options.Credential, ",") {
		if from, to, ok := strings.Cut(strings.TrimSpace(pair), "="); ok && from == name {
			return to
		}
	}
	return name
}

// Scope selects what a comparison reads.
type Scope struct {
	Bill *Bill
	// Credential is the credential of the records; empty for all.
	Credential string
	// From and To are the days that are read.
	From, To time.Time
}

// Store keeps bills.
type Store interface { //nolint:interfacebloat // one store keeps all of a bill, and this package alone calls it
	// Gateway returns the currency of the gateway, the first day of which usage records are kept, and whether the catalog has a
	// provider.
	Gateway(ctx context.Context, provider string) (currency string, keptFrom time.Time, known bool, err error)
	// UnknownCredential returns a name that is of no credential of the bill's provider, now or in its days; empty if there is none.
	UnknownCredential(ctx context.Context, b *Bill, names []string) (string, error)
	// Find returns the bill of a file, or ErrNotFound.
	Find(ctx context.Context, hash [sha256.Size]byte) (*Bill, error)
	// Add stores the lines that read passes on, while it is called, and then the bill that read has filled. Lines whose bill is not
	// stored have no effect, and are removed. If the file was imported in the meantime, Add returns ErrImported.
	Add(ctx context.Context, bill *Bill, read func(add func(*Line) error) error) error
	// RemoveUnfinished removes lines without a bill that an import has left which ended with its process.
	RemoveUnfinished(ctx context.Context) error
	// Get returns a bill, or ErrNotFound; List those before one, the newest first.
	Get(ctx context.Context, id ident.UUID) (*Bill, error)
	List(ctx context.Context, before ident.UUID, limit int) ([]Bill, error)
	// Delete removes a bill with everything of it, and reports whether there was one.
	Delete(ctx context.Context, id ident.UUID) (bool, error)
	// Accept records that somebody accepts what is open.
	Accept(ctx context.Context, id ident.UUID, reason string) (*Bill, error)
	// Pairs reads what is compared, one after another.
	Pairs(ctx context.Context, scope *Scope) iter.Seq2[*Pair, error]
	// SetComparison replaces the comparison of a bill.
	SetComparison(ctx context.Context, id ident.UUID, c *Comparison) error
	// Differences returns those after a number; open ones first.
	Differences(ctx context.Context, id ident.UUID, q *DifferenceQuery) ([]Difference, error)
	// Difference returns one, or ErrNotFound.
	Difference(ctx context.Context, id ident.UUID, number int64) (*Difference, error)
	// Due returns the bills that were not compared since a time and are not accepted.
	Due(ctx context.Context, since time.Time) ([]ident.UUID, error)
	// Overdue returns how many bills have too much open since before a time, and the largest share that is open.
	Overdue(ctx context.Context, before time.Time) (bills int64, share float64, err error)
}

// DifferenceQuery selects differences in the order of what is open, the largest first.
type DifferenceQuery struct {
	// Kind selects those with a part of a kind; empty for all.
	Kind Kind
	// Open selects those with something open.
	Open bool
	// Model and Credential select those of one, Day those of a day; empty for all.
	Model, Credential string
	Day               time.Time
	// AfterOpen and AfterNumber are those of the last one of the page before; AfterNumber is 0 on the first.
	AfterOpen   money.Nano
	AfterNumber int64
	Limit       int
}

// Service imports bills and compares them.
type Service struct {
	store Store
	now   func() time.Time
	// turn is held while a file is imported: many at once would keep others from Postgres.
	turn chan struct{}
}

// NewService returns a Service that uses a store.
func NewService(store Store) *Service {
	return &Service{store, time.Now, make(chan struct{}, 1)}
}

// Import imports a file. If it was imported with the same options before, it returns that bill, and false.
func (s *Service) Import(ctx context.Context, id ident.UUID, file io.Reader, options *Options, actor string) (*Bill, bool, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	default:
		return nil, false, ErrBusy
	}

	currency, keptFrom, known, err := s.store.Gateway(ctx, options.Provider)
	if err != nil {
		return nil, false, err
	}
	if err := options.check(known); err != nil {
		return nil, false, err
	}
	bill := &Bill{
		Options:    *options,
		ID:         id,
		ImportedAt: s.now(),
		ImportedBy: actor,
	}
	err = s.store.Add(ctx, bill, func(add func(*Line) error) error { return s.read(ctx, bill, file, currency, keptFrom, add) })
	if errors.Is(err, ErrImported) { // before, or by another replica at the same time
		found, err := s.same(ctx, bill.Hash, options)
		return found, false, err
	}
	if err != nil {
		return nil, false, err
	}
	if err := s.Compare(ctx, bill.ID); err != nil {
		return nil, false, err
	}
	bill, err = s.store.Get(ctx, bill.ID)
	return bill, true, err
}

// same returns the bill of a file that was imported before.
func (s *Service) same(ctx context.Context, hash [sha256.Size]byte, options *Options) (*Bill, error) {
	found, err := s.store.Find(ctx, hash)
	if err != nil {
		return nil, err
	}
	if o := found.Options; o.Provider != options.Provider || o.Credential != options.Credential || o.TimeZone != options.TimeZone {
		return nil, fmt.Errorf("%w: bill %s is of provider %s", ErrImported, ident.Bill.Format(found.ID), o.Provider)
	}
	if found.ComparedAt == nil { // the control plane was stopped
		if err := s.Compare(ctx, found.ID); err != nil {
			return nil, err
		}
		return s.store.Get(ctx, found.ID)
	}
	return found, nil
}

func (o *Options) check(known bool) error {
	var invalid validation.Errors
	if !known {
		invalid.Add("provider", "is not in the catalog")
	}
	if o.Format != "" && !slices.Contains(Formats, o.Format) {
		invalid.Add("format", "must be one of %v", Formats)
	}
	if _, err := time.LoadLocation(o.TimeZone); err != nil || o.TimeZone == "Local" {
		invalid.Add("time_zone", "must be a zone such as UTC or Europe/Berlin")
	}
	for name, text := range map[string]string{"name": o.Name, "credential": o.Credential} {
		if problem := unusable(text, maxName); problem != "" {
			invalid.Add(name, "%s", problem)
		}
	}
	if strings.Contains(o.Credential, "=") {
		seen := map[string]bool{}
		for pair := range strings.SplitSeq(o.Credential, ",") {
			from, to, ok := strings.Cut(strings.TrimSpace(pair), "=")
			if !ok || from == "" || to == "" || seen[from] {
				invalid.Add("credential", "must be the name of a credential, or pairs such as proj_a=main,proj_b=batch, each name once")
				break
			}
			seen[from] = true
		}
	}
	return invalid.Err()
}

// zone returns the time zone of the bill's days.
func (b *Bill) zone() (*time.Location, error) {
	zone, err := time.LoadLocation(b.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("load the time zone of the bill: %w", err)
	}
	return zone, nil
}

// read reads the content of a bill from its file, once. It returns ErrImported if there is such a bill.
func (s *Service) read(
	ctx context.Context, b *Bill, file io.Reader, currency string, keptFrom time.Time, add func(*Line) error,
) error {
	zone, err := b.zone()
	if err != nil {
		return err
	}
	sent := &upload{r: file, left: MaxFile}
	found, err := Read(sent, zone, add)
	switch {
	case sent.err != nil:
		return sent.err
	case err != nil:
		return err
	}
	b.Content = *found
	if b.Options.Format != "" && b.Options.Format != found.Format {
		return validation.New("format", "is %s, but the file is %s", b.Options.Format, found.Format)
	}
	switch _, err := s.store.Find(ctx, b.Hash); {
	case err == nil:
		return ErrImported
	case !errors.Is(err, ErrNotFound):
		return err
	}
	if err := b.check(currency, keptFrom); err != nil {
		return err
	}
	return s.checkCredentials(ctx, b)
}

// checkCredentials refuses a name that is of no credential: all that is billed for it would be an unknown call.
func (s *Service) checkCredentials(ctx context.Context, b *Bill) error {
	names := b.credentials()
	if len(names) == 0 {
		return nil
	}
	unknown, err := s.store.UnknownCredential(ctx, b, names)
	if err == nil && unknown != "" {
		return validation.New("credential", "%q is no credential of provider %s", unknown, b.Provider)
	}
	return err
}

// check checks the content of the bill.
func (b *Bill) check(currency string, keptFrom time.Time) error {
	found := &b.Content
	switch {
	case found.Currency != "" && found.Currency != currency:
		return validation.New(file, "is in %s, but the prices of the catalog are in %s: convert its amounts and import it as CSV",
			found.Currency, currency)
	case found.FirstDay.Before(keptFrom):
		return fmt.Errorf("%w: the bill begins on %s, records on %s", ErrRecordsDropped,
			found.FirstDay.Format(time.DateOnly), keptFrom.Format(time.DateOnly))
	case found.FirstDay.After(b.ImportedAt.Add(24 * time.Hour)):
		return validation.New(file, "begins in the future, on %s", found.FirstDay.Format(time.DateOnly))
	}
	if found.EndsAt.After(b.ImportedAt) {
		found.EndsAt = b.ImportedAt
	}
	return nil
}

// scope returns what a comparison of all of a bill reads.
func (b *Bill) scope() *Scope {
	return &Scope{
		Bill:       b,
		Credential: b.single(),
		From:       b.FirstDay,
		To:         b.LastDay,
	}
}

// Compare compares a bill again.
func (s *Service) Compare(ctx context.Context, id ident.UUID) error {
	bill, err := s.store.Get(ctx, id)
	if err != nil {
		return err
	}
	found, err := Compare(bill, s.store.Pairs(ctx, bill.scope()))
	if err != nil {
		return err
	}
	return s.store.SetComparison(ctx, id, found)
}

// compareInterval is how often a bill is compared again: usage may be settled late.
const compareInterval = 12 * time.Hour

// CompareDue compares the bills whose comparison is old, and removes what imports have left that did not end. A bill keeps its last
// comparison when usage records of its days are dropped.
func (s *Service) CompareDue(ctx context.Context) error {
	if err := s.store.RemoveUnfinished(ctx); err != nil {
		return err
	}
	due, err := s.store.Due(ctx, s.now().Add(-compareInterval))
	for _, id := range due {
		if err = s.Compare(ctx, id); err != nil && !errors.Is(err, ErrNotFound) { // deleted in the meantime
			return err
		}
	}
	return err
}

// Get returns a bill, or ErrNotFound.
func (s *Service) Get(ctx context.Context, id ident.UUID) (*Bill, error) { return s.store.Get(ctx, id) }

// List returns bills, the newest first.
func (s *Service) List(ctx context.Context, before ident.UUID, limit int) ([]Bill, error) {
	return s.store.List(ctx, before, limit)
}

// Delete removes a bill. Nothing else depends on it.
func (s *Service) Delete(ctx context.Context, id ident.UUID) error {
	found, err := s.store.Delete(ctx, id)
	if err == nil && !found {
		return ErrNotFound
	}
	return err
}

// maxReason bounds the reason of an acceptance, in bytes.
const maxReason = 500

// Accept records that somebody accepts what is open, and why.
func (s *Service) Accept(ctx context.Context, id ident.UUID, reason string) (*Bill, error) {
	if reason = strings.TrimSpace(reason); reason == "" {
		return nil, validation.New("reason", "is empty")
	}
	if problem := unusable(reason, maxReason); problem != "" {
		return nil, validation.New("reason", "%s", problem)
	}
	return s.store.Accept(ctx, id, reason)
}

// Differences returns the differences of a bill, the largest that are open first.
func (s *Service) Differences(ctx context.Context, id ident.UUID, q *DifferenceQuery) ([]Difference, error) {
	if _, err := s.store.Get(ctx, id); err != nil {
		return nil, err
	}
	return s.store.Differences(ctx, id, q)
}

// Overdue returns how many bills have more than 0.1 % open for longer than SettleTime, and the largest share of one.
func (s *Service) Overdue(ctx context.Context) (bills int64, share float64, err error) {
	return s.store.Overdue(ctx, s.now().Add(-SettleTime))
}

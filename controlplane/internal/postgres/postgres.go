// Package postgres connects to the database, which holds the authoritative state of
// the control plane. It contains the connection pool, transactions, the
// translation of driver errors, and migrations.
//
// The packages below it implement the Store interfaces that the domain packages
// declare: one package for each subject, each with a type Store and a function
// New. They contain no rules: the domain packages decide about a change, and the
// store writes it in one transaction. Queries are written by hand in query/ and
// compiled by sqlc into sqlcgen.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
)

// idleInTransaction is how long a transaction may be idle before Postgres ends it:
// while a replica is stopped, others wait for the rows that it has locked.
const idleInTransaction = 3 * time.Second

// The times after which an unreachable peer counts as dead, on both ends of a
// connection: keepaliveIdle without traffic, then keepaliveCount unanswered probes.
const (
	keepaliveIdle     = 5 * time.Second
	keepaliveInterval = 2 * time.Second
	keepaliveCount    = 3
)

// ApplicationName returns the name under which Postgres shows the connections of
// a replica. By it the others close them when they fence the replica.
func ApplicationName(replica string) string { return "controlplane " + replica }

// Config selects the database.
type Config struct {
	// URL is a Postgres connection string; it may contain a password and is never logged. Without an sslmode, in it or in
	// the variable PGSSLMODE, verify-full holds.
	URL string
	// MaxConnections bounds the pool; zero takes pgx's default.
	MaxConnections int
	// Name is the name of the connections in Postgres; the default is "controlplane".
	Name string
	// StatementTimeout bounds each statement; zero means no bound.
	StatementTimeout time.Duration

	// lockTimeout bounds each wait for a lock; zero waits for ever.
	lockTimeout time.Duration
}

// DB is a pool of connections. It is safe for concurrent use.
type DB struct {
	pool  *pgxpool.Pool
	guard *connGuard
}

// Open returns a DB after it has reached the server. The caller must close it.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	pc, err := pgxpool.ParseConfig(withVerification(cfg.URL))
	if err != nil {
		// The text of a parse error can contain the password.
		return nil, errors.New("postgres: the connection string is malformed")
	}

	if cfg.MaxConnections > 0 {
		pc.MaxConns = int32(min(cfg.MaxConnections, 1<<15))
	}

	setParameters(pc.ConnConfig.RuntimeParams, cfg)
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable:   true,
		Idle:     keepaliveIdle,
		Interval: keepaliveInterval,
		Count:    keepaliveCount,
	}}
	pc.ConnConfig.DialFunc = dialer.DialContext
	g := new(connGuard)
	pc.AfterConnect = g.check
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("postgres: open: %w", err)
	}

	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("postgres: reach the database: %w", err)
	}

	return &DB{pool: pool, guard: g}, nil
}

// statedMode matches a connection string that selects an sslmode, or a section of a service file, which can have one.
var statedMode = regexp.MustCompile(`(^|[?&\s])(sslmode|service)\s*=\s*'?\w`)

// withVerification returns the connection string with sslmode=verify-full, unless it or the environment selects another
// mode. The driver's default continues without TLS when the server, or somebody in its place, offers none.
func withVerification(url string) string {
	if os.Getenv("PGSSLMODE") != "" || os.Getenv("PGSERVICE") != "" || statedMode.MatchString(url) {
		return url
	}
	const mode = "sslmode=verify-full"
	switch {
	case !strings.HasPrefix(url, "postgres://") && !strings.HasPrefix(url, "postgresql://"):
		return strings.TrimSpace(url + " " + mode)
	case strings.Contains(url, "?"):
		return url + "&" + mode
	default:
		return url + "?" + mode
	}
}

// setParameters sets the settings that Postgres applies to each connection.
func setParameters(params map[string]string, cfg Config) {
	if params["application_name"] == "" {
		params["application_name"] = "controlplane"
	}
	if cfg.Name != "" {
		params["application_name"] = cfg.Name
	}

	params["timezone"] = "UTC"
	for name, d := range map[string]time.Duration{
		"idle_in_transaction_session_timeout": idleInTransaction,
		"statement_timeout":                   cfg.StatementTimeout,
		"lock_timeout":                        cfg.lockTimeout,

		"tcp_user_timeout": keepaliveIdle + keepaliveCount*keepaliveInterval,
	} {
		if d > 0 {
			params[name] = strconv.FormatInt(d.Milliseconds(), 10)
		}
	}

	params["tcp_keepalives_idle"] = strconv.Itoa(int(keepaliveIdle.Seconds()))
	params["tcp_keepalives_interval"] = strconv.Itoa(int(keepaliveInterval.Seconds()))
	params["tcp_keepalives_count"] = strconv.Itoa(keepaliveCount)
}

// Wrap returns a DB that uses an open pool.
func Wrap(pool *pgxpool.Pool) *DB { return &DB{pool: pool, guard: new(connGuard)} }

// Close waits until all connections are released, and closes the pool.
func (db *DB) Close() { db.pool.Close() }

// Pool returns the pool, for notifications and session locks, which belong to one
// connection.
func (db *DB) Pool() *pgxpool.Pool { return db.pool }

// Queries returns the queries; each runs on any connection of the pool.
func (db *DB) Queries() *sqlcgen.Queries { return sqlcgen.New(db.pool) }

// Ping reports whether the database answers.
func (db *DB) Ping(ctx context.Context) error {
	if err := db.pool.Ping(ctx); err != nil {
		return fmt.Errorf("postgres: ping: %w", err)
	}
	return nil
}

// InTx runs fn in a transaction and commits it if fn returns nil. After a
// serialization failure or a deadlock it runs fn again, up to maxAttempts times in
// all. So fn may change variables outside the transaction only if a second run
// overwrites them.
//
// The transaction writes a commit marker, so that the loss of the commit is
// detected. All changes with effects outside of Postgres, such as a response, use
// InTx or InRevision.
func (db *DB) InTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return db.inTx(ctx, pgx.TxOptions{}, fn)
}

// InTxWithLockTimeout is like InTx, but each statement waits for a lock only up to
// a time, and then fails with an error for which IsLockTimeout is true.
func (db *DB) InTxWithLockTimeout(ctx context.Context, timeout time.Duration, fn func(tx pgx.Tx) error) error {
	return db.inTx(ctx, pgx.TxOptions{BeginQuery: fmt.Sprintf("begin; set local lock_timeout = %d", timeout.Milliseconds())}, fn)
}

func (db *DB) inTx(ctx context.Context, options pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := db.guard.commit(ctx, db.pool, options, fn)
		if err == nil || attempt == maxAttempts || !retryable(err) {
			return err
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
}

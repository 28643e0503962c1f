package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Postgres holds the facts about the database.
type Postgres struct {
	// Version is the server version, such as 160004.
	Version int
	// Settings are the server settings that are checked, by name.
	Settings map[string]string
	// Migration is the schema version of the database, Newest the one of this program.
	Migration, Newest int64
	// Skew is the server's clock less ours; Uncertainty is the possible error of it.
	Skew, Uncertainty time.Duration
	// InRecovery is true for a standby, which accepts no writes.
	InRecovery bool
	// OutboxAge is the age of the oldest unpublished change; zero if there is none.
	OutboxAge time.Duration
	// SecretsByMasterKey is the number of stored secrets by master key id.
	SecretsByMasterKey map[string]int64
	// Connections is the number of open connections of MaxConnections.
	Connections, MaxConnections int
	// ControlPlanes is the number of control planes that have committed in the last seconds. Recovering means that nothing is
	// granted yet after a declared loss of commits.
	ControlPlanes int64
	Recovering    bool
	// Quarantined is the number of open quarantined usage events.
	Quarantined int64
	// OverdueBills is the number of bills of providers of which more than 0.1 % has been open for 48 hours.
	OverdueBills int64
	// UnusableModels are the enabled models without a usable route, RefusingProviders the providers that refuse every
	// enabled credential.
	UnusableModels, RefusingProviders []string
	// UselessLimits are limits and keys that let no request through or that apply to none, at most MaxUselessLimits.
	UselessLimits []UselessLimit
	// UnpricedTools are the models that have no price for the hosted tools that their providers have called since yesterday.
	UnpricedTools []UnpricedTools
	// Providers are the enabled providers.
	Providers []Provider
	// Certificates are those that calls of enabled providers need.
	Certificates []Certificate
}

// Certificate is the first that expires of the certificates of a credential, or of the trusted issuers of a provider: then
// Credential is empty.
type Certificate struct {
	Provider, Credential string
	Expires              time.Time
}

// Provider is a provider with its address.
type Provider struct{ ID, BaseURL string }

// UnpricedTools are calls of hosted tools, which the provider executes and bills, without a price.
type UnpricedTools struct {
	Model string
	Calls int64
}

const (
	oldestPostgres = 150000
	// The thresholds for warnings and failures.
	skewWarning, skewFailure     = 100 * time.Millisecond, time.Second
	outboxWarning, outboxFailure = 10 * time.Second, time.Minute

	// The alerts have the same, in days: MgwProviderCertificateExpires and MgwProviderCertificateExpiresSoon.
	certificateWarning, certificateFailure = 14 * 24 * time.Hour, 3 * 24 * time.Hour
)

func checkPostgres(p *Postgres) []Finding {
	add := collect("postgres")
	add.check(p.Version < oldestPostgres, Failure, "version", "", fmt.Sprintf("server version %d.%d", p.Version/10000, p.Version%10000),
		"This program requires version 15 or newer.", "Upgrade the server.")

	add.check(p.InRecovery, Failure, "primary", "", map[bool]string{true: "is a standby", false: "accepts writes"}[p.InRecovery],
		"Changes, leases and settlements cannot be written.", "Point postgres.url to the primary.")

	add.check(
		p.Migration < p.Newest,
		Failure,
		"migrations",
		"",
		fmt.Sprintf("schema version %d, this program needs %d", p.Migration, p.Newest),
		"The control plane does not start with an older schema.",
		"Run `controlplane migrate`.",
	)

	if p.Migration >= p.Newest {
		add.check(
			p.ControlPlanes == 0,
			Failure,
			"control_planes",
			"",
			number(p.ControlPlanes, "control plane uses", "control planes use")+" this database",
			"No control plane runs, or none reaches Postgres: proxies serve only until their sessions end, and no usage is settled.",
			"Start a control plane. If one is running, see its log and /readyz. Other findings may follow from this one.",
		)
		detail := map[bool]string{true: "a loss of commits was declared, and sessions from before may still be " +
			"valid", false: "no recovery wait"}[p.Recovering]
		add.check(
			p.Recovering,
			Failure,
			"recovery_wait",
			"",
			detail,
			"Requests get the status 503 until every session from before the loss has expired.",
			"Wait for about half a minute; /readyz of the control planes says until when.",
		)
	}

	for _, s := range []struct {
		name    string
		fine    []string
		meaning string
	}{
		{"fsync", []string{"on"}, "A crash of the machine can lose or corrupt committed data, including money."},
		{"full_page_writes", []string{"on"}, "A crash of the machine can corrupt pages."},
		{"synchronous_commit", []string{"on", "remote_apply", "remote_write", "local"}, "A crash can lose confirmed changes, such as " +
			"payments and revocations."},
	} {
		value := p.Settings[s.name]
		add.check(
			!slices.Contains(s.fine, value),
			Failure,
			s.name,
			"",
			s.name+" = "+value,
			s.meaning,
			"Set "+s.name+" = on, and restart or reload the server.",
		)
	}

	free := p.MaxConnections - p.Connections
	add.check(
		free*10 < p.MaxConnections,
		Warning,
		"connections",
		"",
		fmt.Sprintf("%d of %d connections are open", p.Connections, p.MaxConnections),
		"New replicas may get no connection.",
		"Raise max_connections, or lower postgres.max_connections of the replicas.",
	)

	add.skew("", p.Skew, p.Uncertainty, "Until when a proxy may be silent is a time of the database's clock.")
	add.add(outbox(p.OutboxAge))

	add.check(
		p.Quarantined > 0,
		Warning,
		"quarantine",
		"",
		fmt.Sprintf("open quarantined usage events: %d", p.Quarantined),
		"These events could not be read or settled, so they are not billed.",
		"Read the reason of each event. Remove the cause and release the event, or dismiss it.",
	)
	add.check(
		p.OverdueBills > 0,
		Warning,
		"provider_bills",
		"",
		fmt.Sprintf("bills of providers with more than 0.1 %% open after 48 hours: %d", p.OverdueBills),
		"A provider charges another amount than was recorded, and nothing explains it.",
		"List the open differences of the bill. Ask the provider or correct the provider price, then accept the bill or import a new one.",
	)

	return add.findings
}

// checkCatalog checks that each model can be served.
func checkCatalog(p *Postgres) []Finding {
	add := collect("catalog")
	for _, id := range p.RefusingProviders {
		add.check(
			true,
			Failure,
			"usable_credential",
			id,
			"the provider refuses every enabled credential",
			"No request can be sent to this provider.",
			"Check the account at the provider, then replace the secret: `gwctl credentials put`.",
		)
	}

	for _, id := range p.UnusableModels {
		add.check(
			true,
			Failure,
			"usable_route",
			id,
			"the model has no enabled route to an enabled provider with a usable credential",
			"Clients see the model in the list, and every request for it fails.",
			"Enable or add a route, a provider or a credential, or disable the model.",
		)
	}

	for _, t := range p.UnpricedTools {
		add.check(
			true,
			Warning,
			"tool_price",
			t.Model,
			fmt.Sprintf("since yesterday the providers have reported %d calls of hosted tools, which have no price", t.Calls),
			"The providers bill these calls, and no account is charged for them. Requests that ask for such tools are refused, so "+
				"either a provider uses them "+
				"unasked, or requests ask for them in a way that is not known.",
			"Set server_tool in the price of the model (\"0\" if they are free), or disable the tools at the provider. The log of the "+
				"proxies names the requests: "+
				"search it for \"usage that has no price\".",
		)
	}

	if len(p.UnusableModels)+len(p.RefusingProviders) == 0 {
		add.check(false, OK, "usable_route", "", "every model has a route to a provider with a usable credential", "", "")
	}

	return add.findings
}

// checkCertificates reports the certificates that expire soon.
func checkCertificates(all []Certificate, now time.Time) []Finding {
	add := collect("catalog")
	for i := range all {
		c := &all[i]
		left := c.Expires.Sub(now)
		status := Warning
		if left < certificateFailure {
			status = Failure
		}
		verb := "expires"
		if left <= 0 {
			verb = "expired"
		}
		subject, detail := c.Provider+"/"+c.Credential, "the client certificate "+verb+" at "
		meaning := "Afterwards the provider refuses the connections of the proxies with this credential."
		advice := "Get a new certificate from the provider, then replace it together with the secrets: `gwctl credentials put`."
		if c.Credential == "" {
			subject, detail = c.Provider, "the certificate of a trusted issuer "+verb+" at "
			meaning = "Afterwards the proxies refuse the servers of the provider whose certificates are from this issuer."
			advice = "Add the certificate of the new issuer to `ca` of the provider. When its servers use it, remove the old one."
		}
		add.check(left < certificateWarning, status, "certificate", subject, detail+c.Expires.UTC().Format(time.RFC3339), meaning, advice)
	}
	return add.findings
}

func outbox(age time.Duration) Finding {
	f := Finding{
		Area:   "postgres",
		Check:  "outbox",
		Status: OK,
		Detail: "all changes are published",
	}
	if age <= 0 {
		return f
	}

	f.Detail = fmt.Sprintf("the oldest unpublished change has been waiting for %v", age.Round(time.Millisecond))
	if age < outboxWarning {
		return f
	}

	f.Status = Warning
	if age >= outboxFailure {
		f.Status = Failure
	}

	f.Meaning = "Proxies do not receive catalog changes."
	f.Advice = "Search the control plane's log for \"publishing the outbox failed\". NATS may reject writes to the catalog bucket."
	return f
}

// checkMasterKeys checks that every stored secret can be decrypted.
func checkMasterKeys(sealed map[string]int64, knows func(string) bool) Finding {
	f := Finding{Area: "secrets", Check: "master_keys", Status: OK}
	var total int64
	var missing []string
	for id, n := range sealed {
		total += n
		if !knows(id) {
			missing = append(missing, fmt.Sprintf("%s (%d secrets)", id, n))
		}
	}

	f.Detail = fmt.Sprintf("%d stored secrets; all their master keys are configured", total)
	if len(missing) > 0 {
		slices.Sort(missing)
		f.Status, f.Detail = Failure, "missing master keys: "+strings.Join(missing, ", ")
		f.Meaning = "Secrets under these keys cannot be decrypted: API keys cannot be shown, provider credentials cannot be sent to " +
			"proxies, webhooks cannot be signed."
		f.Advice = "Configure the old master keys in addition, until a rotation has moved all secrets."
	}

	return f
}

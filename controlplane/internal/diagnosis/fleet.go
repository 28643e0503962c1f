package diagnosis

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/shared/wire"
)

// spoolWarning and spoolFailure are fill levels of a spool, in percent.
const spoolWarning, spoolFailure = 50, 90

// live returns the number of active sessions.
func live(f *fleet.Fleet) int {
	n := 0
	for i := range f.Proxies {
		if f.Proxies[i].State == fleet.Active {
			n++
		}
	}
	return n
}

// renewalFails reports whether a credential is not refused by the provider but could not be renewed.
func renewalFails(c *fleet.RefusedCredential) bool {
	return c.Reason == wire.SourceFailing || c.Reason == wire.SourceFailed
}

func renewalSeverity(c *fleet.RefusedCredential) Status {
	if c.Reason == wire.SourceFailing {
		return Warning
	}
	return Failure
}

func renewalEffect(c *fleet.RefusedCredential) string {
	if c.Reason == wire.SourceFailing {
		return "Its token is still valid. When that ends, calls with it are not made."
	}
	return "It has no valid token: calls with it are not made, and requests go to other routes, or get 502."
}

// reported says since when a credential is reported, and by which proxies.
func reported(c *fleet.RefusedCredential) string {
	return c.Since.UTC().Format(time.RFC3339) + ", reported by " + strings.Join(c.Proxies, ", ")
}

func checkFleet(f *fleet.Fleet) []Finding {
	add := collect("proxies")
	add.check(live(f) == 0, Failure, "live", "", number(live(f), "live proxy", "live proxies"),
		"No requests are served.", "Start a proxy. If one is running, check its log and /readyz.")

	add.check(
		f.CatalogRev == 0,
		Failure,
		"catalog",
		"",
		fmt.Sprintf("catalog at revision %d", f.CatalogRev),
		"No catalog has been applied, so there are no models and every request is answered with 404.",
		"Apply one: `gwctl catalog apply FILE`.",
	)

	for i := range f.RefusedCredentials {
		c := &f.RefusedCredentials[i]
		if renewalFails(c) {
			add.check(
				true,
				renewalSeverity(c),
				"credentials",
				c.Provider+"/"+c.Credential,
				"cannot be renewed since "+reported(c),
				renewalEffect(c),
				"The log of a proxy has the answer of the token server (`credential cannot be renewed`). Check the parameters and what "+
					"the cloud allows the identity, then `gwctl credentials put`.",
			)
			continue
		}
		add.check(
			true,
			Warning,
			"credentials",
			c.Provider+"/"+c.Credential,
			fmt.Sprintf("refused (%s) since %s", c.Reason, reported(c)),
			"Proxies use the other credentials of the provider, if there are any.",
			"Check the account at the provider, then replace the secret: `gwctl credentials put`.",
		)
	}

	builds := map[string]bool{}
	for i := range f.Proxies {
		d := &f.Proxies[i]
		if d.State == fleet.Closed {
			continue // see the check `unsettled`
		}
		if d.State != fleet.Active {
			add.check(
				d.State == fleet.Expired,
				Warning,
				"session",
				d.Name,
				"session "+d.State,
				"The proxy admits no requests. Its leases are kept until no more usage can arrive.",
				"If the proxy should be running, check its log; otherwise wait.",
			)
			continue
		}
		builds[d.Build] = true
		add.check(
			d.AppliedRev < f.Rev,
			Warning,
			"applied_revision",
			d.Name,
			progress("keys and accounts", d.AppliedRev, f.Rev),
			"The proxy has not confirmed the newest change yet.",
			"Repeat the diagnosis in a few seconds. If the finding remains, check the log of the proxy.",
		)
		add.check(
			d.CatalogRev < f.CatalogRev,
			Warning,
			"catalog_revision",
			d.Name,
			progress("catalog", d.CatalogRev, f.CatalogRev),
			"The proxy uses an older catalog.",
			"Repeat the diagnosis in a few seconds. If the finding remains, see the check `outbox` and the log of the proxy.",
		)
		add.add(spool(d))
	}

	unserved := f.Unserved()
	for _, name := range slices.Sorted(maps.Keys(unserved)) {
		add.check(true, Warning, "unsettled", name, "left with "+number(unserved[name], "unsettled request", "unsettled requests"),
			"These requests were served and are not billed. Their usage is on the disk of the proxy, which does not run.",
			"Start the proxy again with the same name and disk: it publishes the usage, and can be stopped when nothing is unsettled.")
	}

	if len(builds) == 0 {
		return add.findings
	}

	names := slices.Sorted(maps.Keys(builds))
	add.check(
		len(names) > 1,
		Warning,
		"versions",
		"",
		strings.Join(names, ", "),
		"Proxies of several versions are running.",
		"Finish the update.",
	)
	return add.findings
}

// progress tells how far a proxy is. It may have confirmed more than the latest change of keys and accounts, because the
// catalog has the same sequence of revisions.
func progress(of string, applied, latest int64) string {
	if applied >= latest {
		return fmt.Sprintf("%s at revision %d, the latest", of, latest)
	}
	return fmt.Sprintf("%s at revision %d; the latest is %d", of, applied, latest)
}

func spool(d *fleet.Proxy) Finding {
	percent := d.SpoolUsed * 100 / max(d.SpoolCapacity, 1)
	f := Finding{
		Area:    "proxies",
		Check:   "spool",
		Subject: d.Name,
		Status:  OK,
		Detail:  fmt.Sprintf("%d of %d units are used (%d %%)", d.SpoolUsed, d.SpoolCapacity, percent),
	}

	switch {
	case percent >= spoolFailure:
		f.Status, f.Meaning = Failure, "The proxy answers new requests with 503, since it could not store their usage."
	case percent >= spoolWarning:
		f.Status, f.Meaning = Warning, "When the spool is full, the proxy answers new requests with 503."
	default:
		return f
	}

	f.Advice = "Settlement is behind. See the check `usage_lag`."
	return f
}

// checkDescriptions compares the secrets and clocks of the proxies with ours.
func checkDescriptions(f *fleet.Fleet, said []Description, ours *Secrets) []Finding {
	bySession := map[wire.SessionID]Description{}
	for _, d := range said {
		bySession[d.Session] = d
	}

	add := collect("secrets")
	clocks := collect("proxies")
	failing, unserved := map[string][]string{}, map[string][]string{}
	for i := range f.Proxies {
		d := &f.Proxies[i]
		if d.State != fleet.Active {
			continue
		}

		it, answered := bySession[wire.SessionID(d.Session)]
		if !answered {
			clocks.check(true, Warning, "answers", d.Name, "did not answer in time",
				"The secrets and the clock of the proxy could not be checked. Proxies of older versions do not answer.",
				"Repeat the diagnosis. If the finding remains, check the proxy's connection to NATS and the permissions of its NATS user.")
			continue
		}

		add.peppers(d.Name, it.Peppers, ours.Peppers)
		opens := it.FleetKey == ours.FleetKey || slices.Contains(it.PreviousFleetKeys, ours.FleetKey)
		add.check(!opens, Failure, "fleet_key", d.Name, comparison(opens, "fleet key"),
			"The proxy cannot decrypt provider credentials, so it can call no provider.",
			"Configure the same secrets.fleet_key in both planes, or add the control plane's to secrets.previous_fleet_keys of the proxy.")

		clocks.add(ready(d, it.NotReady))
		for _, route := range it.FailingRoutes {
			failing[route] = append(failing[route], d.Name)
		}

		for _, model := range it.FailingModels {
			unserved[model] = append(unserved[model], d.Name)
		}

		clocks.skew(d.Name, it.Skew, it.Uncertainty, "The times of requests, and the days on which they are billed, are wrong.")
	}

	return slices.Concat(add.findings, clocks.findings, checkCalls(failing), checkModels(unserved))
}

// ready judges the reasons for which a proxy is not ready. A draining proxy is not ready on purpose.
func ready(d *fleet.Proxy, reasons map[string]string) Finding {
	f := Finding{
		Area:    "proxies",
		Check:   "ready",
		Subject: d.Name,
		Status:  OK,
		Detail:  "ready",
	}
	if len(reasons) == 0 || d.Draining {
		return f
	}

	var texts []string
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		texts = append(texts, name+": "+reasons[name])
	}

	f.Status, f.Detail = Failure, "not ready: "+strings.Join(texts, "; ")
	f.Meaning, f.Advice = "The proxy serves no requests.", "See the reason and the log of the proxy."
	return f
}

// checkCalls reports the routes whose last calls have failed, with the names of the proxies that made them.
func checkCalls(failing map[string][]string) []Finding {
	add := collect("catalog")
	for _, route := range slices.Sorted(maps.Keys(failing)) {
		add.check(true, Warning, "calls", route, "the last calls have all failed, at "+strings.Join(failing[route], ", "),
			"Proxies use the other routes of the model, if there are any, and try this one again from time to time.",
			"Check the provider and its address. The log lines of failed attempts name the error.")
	}
	if len(failing) == 0 {
		add.check(false, OK, "calls", "", "no route fails at every call", "", "")
	}
	return add.findings
}

// checkModels reports the models all of whose routes fail at some proxy, with the names of these proxies.
func checkModels(unserved map[string][]string) []Finding {
	add := collect("catalog")
	for _, model := range slices.Sorted(maps.Keys(unserved)) {
		add.check(
			true,
			Failure,
			"served",
			model,
			"the last calls of every route have all failed, at "+strings.Join(unserved[model], ", "),
			"Clients get 502 for this model.",
			"Check the providers of its routes, or put the model under maintenance. The log lines of failed attempts name the error.",
		)
	}
	if len(unserved) == 0 {
		add.check(false, OK, "served", "", "no model fails at all of its routes", "", "")
	}
	return add.findings
}

// peppers compares a proxy's peppers with ours, the current one first. Their order at the proxy
// does not matter, since it tries all of them.
func (c *collection) peppers(proxy string, its, ours []string) {
	missing := slices.DeleteFunc(slices.Clone(ours), func(pepper string) bool { return slices.Contains(its, pepper) })
	const advice = "Configure the same peppers in both planes: secrets.pepper and secrets.previous_peppers together."
	switch {
	case len(missing) == len(ours):
		c.check(
			true,
			Failure,
			"pepper",
			proxy,
			comparison(false, "pepper"),
			"The proxy finds no API key: every request is answered with 401.",
			advice,
		)
	case slices.Contains(missing, ours[0]):
		c.check(true, Failure, "pepper", proxy, "does not have the current pepper, only previous ones",
			"The proxy finds no API key that was issued under the current pepper: requests with one are answered with 401.", advice)
	default:
		c.check(len(missing) > 0, Warning, "pepper", proxy, pepperDetail(len(missing)),
			"Requests with API keys that only these peppers find, such as imported keys, are answered with 401.", advice)
	}
}

// pepperDetail describes how many previous peppers are missing.
func pepperDetail(missing int) string {
	if missing == 0 {
		return comparison(true, "pepper")
	}
	return fmt.Sprintf("does not have %d of the previous peppers", missing)
}

func comparison(same bool, secret string) string {
	if same {
		return "has the same " + secret + " as the control plane"
	}
	return "has a different " + secret + " from the control plane"
}

func checkLedger(r *ledger.Report) []Finding {
	add := collect("ledger")
	for _, c := range r.Checks {
		detail := fmt.Sprintf("%d rows compared, %d differ", c.Compared, c.Differing)
		if c.First != nil {
			detail += fmt.Sprintf("; the first is %s: got %d, want %d", c.First.Row, c.First.Got, c.First.Want)
		}
		add.check(
			c.Differing > 0,
			Failure,
			c.Name,
			"",
			detail,
			"Ledger, pools and usage records differ.",
			"Keep the database unchanged, and examine the differing rows before you correct anything.",
		)
	}
	return add.findings
}

// collection gathers the findings of an area.
type collection struct {
	area     string
	findings []Finding
}

func collect(area string) *collection { return &collection{area: area} }

func (c *collection) add(f Finding) { c.findings = append(c.findings, f) }

// check adds a finding. Its status is OK unless wrong is true.
func (c *collection) check(wrong bool, status Status, check, subject, detail, meaning, advice string) {
	f := Finding{
		Area:    c.area,
		Check:   check,
		Subject: subject,
		Status:  OK,
		Detail:  detail,
	}
	if wrong {
		f.Status, f.Meaning, f.Advice = status, meaning, advice
	}
	c.add(f)
}

// skew adds a finding about a clock. The uncertainty of the measurement counts in favour of the
// clock.
func (c *collection) skew(subject string, skew, doubt time.Duration, meaning string) {
	sure := max(skew.Abs()-doubt, 0)
	status := Warning
	if sure >= skewFailure {
		status = Failure
	}
	c.check(
		sure >= skewWarning,
		status,
		"clock",
		subject,
		fmt.Sprintf("differs by %v from the control plane, ± %v", skew.Round(time.Millisecond), doubt.Round(time.Millisecond)),
		meaning,
		"Synchronise the clocks of all machines with NTP.",
	)
}

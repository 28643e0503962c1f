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

// spoolWarning and spoolFailure are parts of a spool, in percent.
const spoolWarning, spoolFailure = 50, 90

// live counts the sessions that are active.
func live(f *fleet.Fleet) int {
	n := 0
	for i := range f.Dataplanes {
		if f.Dataplanes[i].State == fleet.Active {
			n++
		}
	}
	return n
}

func judgeFleet(f *fleet.Fleet) []Finding {
	add := collect("proxies")
	add.judge(live(f) == 0, Failure, "live", "", fmt.Sprintf("%d proxies live", live(f)),
		"Nothing is served.", "Start a proxy, and look into its log and /readyz.")
	for i := range f.Refused {
		c := &f.Refused[i]
		add.judge(true, Warning, "credentials", c.Provider+"/"+c.Credential,
			fmt.Sprintf("refused (%s) since %s, says %s", c.Reason, c.Since.UTC().Format(time.RFC3339), strings.Join(c.Dataplanes, ", ")),
			"The provider's other credentials serve instead, if there are any.", "See the provider's account, then give the credential another secret: `gwctl credentials put`.")
	}
	builds := map[string]bool{}
	for i := range f.Dataplanes {
		d := &f.Dataplanes[i]
		if d.State != fleet.Active {
			add.judge(d.State == fleet.Expired, Warning, "session", d.Name, "session "+d.State,
				"It admits nothing; its leases are kept until it is certain that it reports no more usage.", "If it should run, look into its log; else wait.")
			continue
		}
		builds[d.Build] = true
		add.judge(d.AppliedRev < f.Rev, Warning, "applied_revision", d.Name, fmt.Sprintf("keys and accounts at %d of %d", d.AppliedRev, f.Rev),
			"It has not confirmed the newest change yet.", "Ask again in a few seconds. If it stays so, look into its log.")
		add.judge(d.CatalogRev < f.CatalogRev, Warning, "catalog_revision", d.Name, fmt.Sprintf("catalog at %d of %d", d.CatalogRev, f.CatalogRev),
			"It serves by an older catalog.", "Ask again in a few seconds. If it stays so, see the check `outbox`, and its log.")
		add.add(spool(d))
	}
	if len(builds) == 0 {
		return add.findings
	}
	names := slices.Sorted(maps.Keys(builds))
	add.judge(len(names) > 1, Warning, "versions", "", strings.Join(names, ", "), "Proxies of several versions serve.", "Finish the update.")
	return add.findings
}

func spool(d *fleet.Dataplane) Finding {
	percent := d.SpoolUsed * 100 / max(d.SpoolCapacity, 1)
	f := Finding{
		Area: "proxies", Check: "spool", Subject: d.Name, Status: OK,
		Detail: fmt.Sprintf("%d of %d places are used (%d %%)", d.SpoolUsed, d.SpoolCapacity, percent),
	}
	switch {
	case percent >= spoolFailure:
		f.Status, f.Meaning = Failure, "It answers new requests with 503, since it could not keep their usage."
	case percent >= spoolWarning:
		f.Status, f.Meaning = Warning, "If it fills up, the proxy answers with 503."
	default:
		return f
	}
	f.Advice = "Settlement is behind: see the check `usage_lag`."
	return f
}

// judgeDescriptions compares what proxies hold and what time they have with
// ours.
func judgeDescriptions(f *fleet.Fleet, said []Description, ours *Secrets) []Finding {
	bySession := map[wire.SessionID]Description{}
	for _, d := range said {
		bySession[d.Session] = d
	}
	add := collect("secrets")
	clocks := collect("proxies")
	for i := range f.Dataplanes {
		d := &f.Dataplanes[i]
		if d.State != fleet.Active {
			continue
		}
		it, answered := bySession[wire.SessionID(d.Session)]
		if !answered {
			clocks.judge(true, Warning, "answers", d.Name, "did not describe itself in time",
				"Its secrets and its clock are not known. Proxies of older versions do not answer.",
				"Ask again; then check its connection to NATS and the permissions of its user.")
			continue
		}
		add.peppers(d.Name, it.Peppers, ours.Peppers)
		add.judge(it.FleetKey != ours.FleetKey, Failure, "fleet_key", d.Name, sameOrNot(it.FleetKey == ours.FleetKey, "fleet key"),
			"It cannot open provider credentials: no provider can be called.", "Give both planes the same secrets.fleet_key.")
		clocks.skew(d.Name, it.Skew, it.Doubt, "Times of requests, and with them the days that they are billed on, are wrong.")
	}
	return append(add.findings, clocks.findings...)
}

// peppers compares what a proxy looks keys up under with ours, the current one
// first. Which of them a proxy has in force is the same to it: it looks under all.
func (c *collection) peppers(proxy string, its, ours []string) {
	missing := slices.DeleteFunc(slices.Clone(ours), func(pepper string) bool { return slices.Contains(its, pepper) })
	const give = "Give both planes the same peppers: secrets.pepper and secrets.previous_peppers together."
	switch {
	case len(missing) == len(ours):
		c.judge(true, Failure, "pepper", proxy, sameOrNot(false, "pepper"), "It finds no key: every request is answered with 401.", give)
	case slices.Contains(missing, ours[0]):
		c.judge(true, Failure, "pepper", proxy, "does not have our current pepper, only one of before",
			"It finds no key that we have issued since: requests with one are answered with 401.", give)
	default:
		c.judge(len(missing) > 0, Warning, "pepper", proxy, havingAll(len(missing)),
			"Keys that only these find, such as imported ones, are answered with 401 there.", give)
	}
}

func havingAll(missing int) string {
	if missing == 0 {
		return sameOrNot(true, "pepper")
	}
	return fmt.Sprintf("lacks %d of our peppers of before", missing)
}

func sameOrNot(same bool, what string) string {
	if same {
		return "has our " + what
	}
	return "has another " + what + " than the control plane"
}

func judgeLedger(r *ledger.Report) []Finding {
	add := collect("ledger")
	for _, c := range r.Checks {
		detail := fmt.Sprintf("%d compared, %d differ", c.Compared, c.Differing)
		if c.First != nil {
			detail += fmt.Sprintf("; the first is %s: %d instead of %d", c.First.Row, c.First.Got, c.First.Want)
		}
		add.judge(c.Differing > 0, Failure, c.Name, "", detail,
			"Money is not where it should be.", "Keep the database as it is, and have the differing rows looked at before anything is corrected.")
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

// judge adds a finding that is in order unless something is wrong.
func (c *collection) judge(wrong bool, status Status, check, subject, detail, meaning, advice string) {
	f := Finding{Area: c.area, Check: check, Subject: subject, Status: OK, Detail: detail}
	if wrong {
		f.Status, f.Meaning, f.Advice = status, meaning, advice
	}
	c.add(f)
}

// skew judges a clock. What the way of the question may have taken is no skew.
func (c *collection) skew(subject string, skew, doubt time.Duration, meaning string) {
	sure := max(skew.Abs()-doubt, 0)
	status := Warning
	if sure >= skewFailure {
		status = Failure
	}
	c.judge(sure >= skewWarning, status, "clock", subject, fmt.Sprintf("%v from ours, give or take %v", skew.Round(time.Millisecond), doubt.Round(time.Millisecond)),
		meaning, "Let all machines keep their clocks by NTP.")
}

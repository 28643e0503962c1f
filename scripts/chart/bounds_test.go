package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A bound is the last value with which a program starts, and the first with which it does not. Durations are in nanoseconds,
// fractions in millionths.
type bound struct {
	plane, key, typ string
	inside, outside int64
}

// numbers are values of settings by their keys.
type numbers map[string]int64

// A validation asks a program about the bounds of its settings.
type validation struct {
	t     *testing.T
	types map[string]string
	check func(flags ...string) error
}

// settingText returns a value as the programs read it.
func settingText(typ string, n int64) string {
	switch typ {
	case "time.Duration":
		return strconv.FormatInt(n, 10) + "ns"
	case "float64":
		return strconv.FormatFloat(float64(n)/1e6, 'f', -1, 64)
	}
	return strconv.FormatInt(n, 10)
}

// refused returns which of the values the program refuses.
func (v *validation) refused(of numbers) map[string]bool {
	v.t.Helper()
	var flags []string
	for key, n := range of {
		flags = append(flags, "--"+key+"="+settingText(v.types[key], n))
	}
	err := v.check(flags...)
	found := map[string]bool{}
	for key := range of {
		if err != nil && strings.Contains(err.Error(), "config: "+key+" ") {
			found[key] = true
		}
	}
	if err != nil && len(found) == 0 {
		v.t.Fatalf("the program refuses %v for another reason: %v", of, err)
	}
	return found
}

// bounds returns the bounds of all settings that are numbers. It tries powers of 16 with either sign, and looks between the last
// that is refused and the first that is not. A value that switches something off, such as 0, is no bound: the longest row of
// values counts.
func (v *validation) bounds(plane string) []bound {
	v.t.Helper()
	rungs := []int64{0}
	for n := int64(1); n < math.MaxInt64/16; n *= 16 {
		rungs = append(rungs, n, -n)
	}
	slices.Sort(rungs)

	extremes := func(n int64) numbers {
		all := numbers{}
		for key, typ := range v.types {
			if slices.Contains([]string{"time.Duration", "int", "int64", "float64"}, typ) {
				all[key] = n
			}
		}
		return all
	}
	bounded := v.refused(extremes(rungs[0]))
	maps.Copy(bounded, v.refused(extremes(rungs[len(rungs)-1])))

	// Only these are set, because a value of one may be a reason to refuse another.
	refusedAt := map[string][]bool{}
	for _, n := range rungs {
		of := numbers{}
		for key := range bounded {
			of[key] = n
		}
		found := v.refused(of)
		for key := range bounded {
			refusedAt[key] = append(refusedAt[key], found[key])
		}
	}

	var least, most []bound
	for key, refused := range refusedAt {
		first, last := longestRow(refused)
		if first < 0 {
			v.t.Fatalf("%s refuses every value of %s", plane, key)
		}
		if first > 0 {
			least = append(least, bound{plane, key, v.types[key], rungs[first], rungs[first-1]})
		}
		if last < len(rungs)-1 {
			most = append(most, bound{plane, key, v.types[key], rungs[last], rungs[last+1]})
		}
	}
	v.narrow(least)
	v.narrow(most)
	return slices.Concat(least, most)
}

// longestRow returns the first and the last place of the longest row of values that are false, or -1.
func longestRow(of []bool) (first, last int) {
	first, last = -1, -2
	for i := 0; i < len(of); i++ {
		from := i
		for i < len(of) && !of[i] {
			i++
		}
		if i-from > last-first+1 {
			first, last = from, i-1
		}
	}
	return first, last
}

// narrow moves both sides of each bound until nothing is between them.
func (v *validation) narrow(all []bound) {
	v.t.Helper()
	for {
		of := numbers{}
		for _, b := range all {
			if middle := b.outside + (b.inside-b.outside)/2; middle != b.inside && middle != b.outside {
				of[b.key] = middle
			}
		}
		if len(of) == 0 {
			return
		}
		found := v.refused(of)
		for i := range all {
			b := &all[i]
			if middle, tried := of[b.key]; tried && found[b.key] {
				b.outside = middle
			} else if tried {
				b.inside = middle
			}
		}
	}
}

// otherValues are the values of the chart for settings that do not stand under config: their path and their unit.
var otherValues = map[string]struct {
	path string
	// The value is parts/unit of the setting.
	parts, unit int64
	// isText is set if the value is a text, whose number stands before the suffix.
	isText bool
	suffix string
}{
	"controlplane.console.session_idle":           {"controlplane.console.sessionIdle", 1, int64(time.Second), true, "s"},
	"controlplane.nats.usage_kept":                {"nats.usage.keptHours", 1, int64(time.Hour), false, ""},
	"controlplane.nats.usage_max_bytes":           {"nats.usage.maxSize", 1, 1, true, ""},
	"controlplane.postgres.max_connections":       {"controlplane.postgres.maxConnections", 1, 1, false, ""},
	"controlplane.postgres.admin_max_connections": {"controlplane.postgres.adminMaxConnections", 1, 1, false, ""},
	"dataplane.api.body_budget":                   {"dataplane.api.bodyBudget", 1, 1, true, ""},
	"dataplane.drain_timeout":                     {"dataplane.drainTimeoutSeconds", 1, int64(time.Second), false, ""},
	"dataplane.spool.max_bytes":                   {"dataplane.spool.size", 5, 4, true, ""}, // the program may use 80 % of the volume
	"dataplane.tracing.sample_ratio":              {"tracing.sampleRatio", 1, 1, false, ""},
}

// value returns the path of the value for a setting, and the value for n. If its unit is coarser, what is outside is rounded away
// from the bound, and what is inside too.
func (b *bound) value(n int64) (path string, value any) {
	other, isOther := otherValues[b.plane+"."+b.key]
	switch {
	case !isOther && b.typ == "time.Duration":
		return b.plane + ".config." + b.key, settingText(b.typ, n)
	case !isOther:
		return b.plane + ".config." + b.key, n
	case b.typ == "float64":
		return other.path, float64(n) / 1e6
	}

	isUp := (n > b.inside) || n == b.inside && b.outside < n
	in := divide(n*other.parts, other.unit, isUp)
	if other.isText {
		return other.path, strconv.FormatInt(in, 10) + other.suffix
	}
	return other.path, in
}

// divide rounds up or down.
func divide(n, by int64, isUp bool) int64 {
	if isUp {
		return -divide(-n, by, false)
	}
	if n%by < 0 {
		return n/by - 1
	}
	return n / by
}

// set sets a value at a dotted path.
func set(in map[string]any, path string, value any) {
	section, rest, nested := strings.Cut(path, ".")
	if !nested {
		in[section] = value
		return
	}
	if in[section] == nil {
		in[section] = map[string]any{}
	}
	set(in[section].(map[string]any), rest, value)
}

// renderWith renders the chart with the values for numbers of some settings.
func renderWith(t *testing.T, of []bound, number func(*bound) int64) (objects, error) {
	t.Helper()
	all := map[string]any{}
	set(all, "controlplane.archive.existingClaim", "archive") // without it, nothing of the audit log is removed
	for i := range of {
		path, value := of[i].value(number(&of[i]))
		set(all, path, value)
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	cmd := tool(t, "helm", withValues("-", "template", "release", chartDir)...)
	cmd.Stdin = strings.NewReader(string(text))
	out, err := output(cmd)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	return decodeObjects(t, out), nil
}

// A value that is rendered but refused by the program stops a roll-out halfway. The bounds are those that the programs show when
// they are asked.
func TestChartHasTheBoundsOfThePrograms(t *testing.T) {
	t.Parallel()
	all := renderObjects(t, "defaults")
	certificate, key := newCertificate(t)
	var bounds []bound
	for _, o := range all.servers() {
		dir := t.TempDir()
		check := programOf(t, all, o, dir, certificate, key)
		v := &validation{t, settingTypes(t, o.plane()), check}
		if o.plane() == "controlplane" {
			v.check = func(flags ...string) error {
				return check(append(flags, "--archive.dir="+filepath.Join(dir, "archive"))...)
			}
		}
		bounds = append(bounds, v.bounds(o.plane())...)
	}
	if len(bounds) < 25 {
		t.Fatalf("only the bounds %+v were found", bounds)
	}

	for _, b := range bounds {
		t.Run(b.plane+"."+b.key, func(t *testing.T) {
			t.Parallel()
			path, value := b.value(b.outside)
			_, err := renderWith(t, []bound{b}, func(b *bound) int64 { return b.outside })
			if name := path[strings.LastIndex(path, ".")+1:]; err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s = %v: got %v; want an error that names it, as the program has", path, value, err)
			}
		})
	}

	// With all bounds of one side at once, the programs start.
	for _, isLeast := range []bool{true, false} {
		side := slices.DeleteFunc(slices.Clone(bounds), func(b bound) bool { return (b.inside > b.outside) != isLeast })
		rendered, err := renderWith(t, side, func(b *bound) int64 { return b.inside })
		if err != nil {
			t.Error(err)
			continue
		}
		for _, o := range rendered.servers() {
			if err := programOf(t, rendered, o, t.TempDir(), certificate, key)(); err != nil {
				t.Errorf("%v: %v", o, err)
			}
		}
	}
}

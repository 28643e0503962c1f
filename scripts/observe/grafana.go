package observe

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// A Dashboard describes one dashboard for Grafana.
type Dashboard struct {
	// UID is the id in Grafana, which links and bookmarks contain, and the name of the file. It never changes.
	UID   string
	Title string
	// Description is a sentence on the questions that the dashboard answers.
	Description string
	Rows        []Row
}

// A Row is a group of panels under a heading.
type Row struct {
	Title  string
	Panels []Panel
}

// A Panel is one graph or list.
type Panel struct {
	Title string
	// Description explains the figures, as sentences.
	Description string
	// Unit is a unit of Grafana, such as s or reqps. It is empty for plain numbers.
	Unit    string
	Queries []Query
	// Table shows the present values in a table in place of a graph over time.
	Table bool
}

// A Query is a query of Prometheus with the legend of its series.
type Query struct{ Expr, Legend string }

type object = map[string]any

const (
	columns     = 24 // the width of a dashboard in Grafana's units
	panelWidth  = 8
	panelHeight = 8
	// schemaVersion is the version of the format, that of Grafana 11. Later versions migrate it.
	schemaVersion = 39
)

// JSON returns the dashboard in Grafana's format.
func (d Dashboard) JSON() ([]byte, error) {
	var panels []object
	y, id := 0, 0
	next := func() int { id++; return id }
	for _, row := range d.Rows {
		panels = append(panels, object{
			"id": next(), "type": "row", "title": row.Title, "collapsed": false,
			"gridPos": object{"x": 0, "y": y, "w": columns, "h": 1}, "panels": []object{},
		})
		y++
		for i, p := range row.Panels {
			x := i * panelWidth % columns
			panel := p.object(next())
			panel["gridPos"] = object{"x": x, "y": y, "w": panelWidth, "h": panelHeight}
			panels = append(panels, panel)
			if x+panelWidth == columns || i == len(row.Panels)-1 {
				y += panelHeight
			}
		}
	}

	text, err := json.MarshalIndent(object{
		"uid":           d.UID,
		"title":         "Model gateway / " + d.Title,
		"description":   d.Description,
		"tags":          []string{"modelgateway"},
		"schemaVersion": schemaVersion,
		"editable":      true,
		"graphTooltip":  1,
		"refresh":       "30s",
		"timezone":      "browser",
		"time":          object{"from": "now-6h", "to": "now"},
		"panels":        panels,
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0, "refresh": 1},
			choice("namespace", "Namespace", "namespace", "mgw_ready"),
			choice("release", "Release", releaseLabel, `mgw_ready{namespace=~"$namespace"}`),
		}},
		"links": []object{
			{
				"type":        "dashboards",
				"tags":        []string{"modelgateway"},
				"title":       "Model gateway",
				"asDropdown":  true,
				"includeVars": true,
				"keepTime":    true,
			},
		},
	}, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode dashboard %s: %w", d.UID, err)
	}

	return append(text, '\n'), nil
}

// releaseLabel is the label of the release, which the chart's ServiceMonitors give to the samples.
const releaseLabel = "app_kubernetes_io_instance"

// choice returns a variable with the values of a label. All of them are chosen at first: also samples without the label.
func choice(name, title, label, of string) object {
	values := "label_values(" + of + ", " + label + ")"
	return object{
		"name": name, "label": title, "type": "query", "datasource": object{"type": "prometheus", "uid": "${datasource}"},
		"query": object{"query": values, "refId": name}, "definition": values,
		"multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": []string{"All"}, "value": []string{"$__all"}},
		"refresh": 2, "sort": 1, "hide": 0,
	}
}

// samples matches the names of metrics in a query, with the brace of their matchers if they have any.
var samples = regexp.MustCompile(`\b(mgw_[a-z0-9_]+|(?:process|go)_[a-z0-9_]+|up)\b(\{)?`)

// ofRelease returns a query for the samples of the chosen namespaces and releases.
func ofRelease(expr string) string {
	const chosen = `{namespace=~"$namespace",` + releaseLabel + `=~"$release"`
	return samples.ReplaceAllStringFunc(expr, func(sample string) string {
		if name, matchers := strings.CutSuffix(sample, "{"); matchers {
			return name + chosen + ","
		}
		return sample + chosen + "}"
	})
}

// object returns the panel in Grafana's format, without its place.
func (p Panel) object(id int) object {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var targets []object
	for i, q := range p.Queries {
		target := object{"refId": string(rune('A' + i)), "expr": ofRelease(q.Expr), "legendFormat": q.Legend, "datasource": source}
		if p.Table {
			target["instant"], target["format"] = true, "table"
		}
		targets = append(targets, target)
	}

	unit := p.Unit
	if unit == "" {
		unit = "short"
	}

	defaults := object{"unit": unit}
	panel := object{
		"id": id, "type": "timeseries", "title": p.Title, "description": p.Description, "datasource": source, "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}},
	}
	if p.Table {
		panel["type"] = "table"
		panel["transformations"] = []object{{"id": "organize", "options": object{"excludeByName": object{"Time": true}}}}
		return panel
	}

	defaults["min"] = 0
	defaults["custom"] = object{"fillOpacity": 10, "showPoints": "never"}

	panel["options"] = object{
		"legend":  object{"displayMode": "list", "placement": "bottom"},
		"tooltip": object{"mode": "multi", "sort": "desc"},
	}
	return panel
}

// Package observe describes the dashboards of the Helm chart and tests its alerts.
//
// The alerts are a rule file of Prometheus in deploy/helm/modelgateway/files/rules. The
// tests here run promtool on it. The dashboards are written by this package into
// deploy/helm/modelgateway/files/dashboards, from the descriptions in this package:
// make generate does it.
package observe

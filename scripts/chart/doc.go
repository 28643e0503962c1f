// Package chart checks the Helm chart in deploy/helm/modelgateway. It holds
// tests only.
//
// They render the chart with its defaults and with every file of its ci folder,
// by the helm that scripts/tools/helm pins, and ask three things of the result:
// that helm's linter and the chart's own schema accept the values, that the
// objects are what the API of Kubernetes takes (kubeconform, with schemas made
// from the released API document), and that they fit together and fit the
// programs: selectors, ports, files and hooks that meet, settings that the
// programs know, secrets that only the right pod sees.
//
// What needs a cluster is not checked here. The go command does not see that the
// chart, which is outside this module, has changed: run these tests with -count=1.
package chart

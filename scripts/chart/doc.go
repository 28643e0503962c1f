// Package chart tests the Helm chart in deploy/helm/modelgateway. It holds tests only.
//
// The tests render the chart with its defaults and with every file in its ci folder, using
// the version of helm in scripts/tools/helm. They check that
//
//   - helm's linter and the schema of the chart accept the values;
//   - the API of Kubernetes accepts the objects (kubeconform, with schemas derived from the
//     released API document);
//   - the objects are consistent: selectors, ports, files and hooks refer to existing
//     objects;
//   - all settings are settings of the programs, and each pod mounts only the secrets of its program.
//
// Tests that need a cluster are not included. The go command does not detect changes of the
// chart, because it is outside this module, so run the tests with -count=1.
package chart

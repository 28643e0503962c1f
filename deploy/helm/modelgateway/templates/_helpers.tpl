{{/*
Names and labels. A component's helpers take (list $ "component").
*/}}

{{- define "modelgateway.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* 40 characters leave room for "-dataplane" and the revision hash that a StatefulSet puts into a label of at most 63. */}}
{{- define "modelgateway.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- $name = .Values.fullnameOverride }}
{{- else if not (contains $name .Release.Name) }}
{{- $name = printf "%s-%s" .Release.Name $name }}
{{- else }}
{{- $name = .Release.Name }}
{{- end }}
{{- $name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "modelgateway.componentName" -}}
{{ include "modelgateway.fullname" (first .) }}-{{ last . }}
{{- end }}

{{- define "modelgateway.selectorLabels" -}}
app.kubernetes.io/name: {{ include "modelgateway.name" (first .) }}
app.kubernetes.io/instance: {{ (first .).Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{- define "modelgateway.labels" -}}
{{ include "modelgateway.selectorLabels" . }}
app.kubernetes.io/version: {{ (first .).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (first .).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (first .).Chart.Name (first .).Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with (first .).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The name of a component's service account. */}}
{{- define "modelgateway.serviceAccountName" -}}
{{- $account := (index (first .).Values (last .)).serviceAccount }}
{{- if and (not $account.create) (not $account.name) }}
{{- fail (printf "%s.serviceAccount.name is empty; it is required unless the service account is created" (last .)) }}
{{- end }}
{{- $account.name | default (include "modelgateway.componentName" .) }}
{{- end }}

{{/*
Takes (list $ image). Without a registry a node would pull the image from its default registry, where the repository can
belong to anybody. The first part of a name is a registry if it has a dot or a port, or is localhost.
*/}}
{{- define "modelgateway.image" -}}
{{- $root := first . }}
{{- $image := last . }}
{{- if not (or $root.Values.image.registry (regexMatch "^(localhost|[^/]*[.:][^/]*)/" $image.repository)) }}
{{- fail "image.registry is empty: name the registry that has your images, which make images builds" }}
{{- end }}
{{- with $root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Values.image.tag | default $root.Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Bytes of a quantity such as 512Mi or 1.5G. */}}
{{- define "modelgateway.bytes" -}}
{{- $quantity := toString . }}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" $quantity }}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- $unit := trimPrefix $number $quantity }}
{{- if or (not $number) (not (hasKey $units $unit)) }}
{{- fail (printf "%q is not a quantity of bytes such as 512Mi" $quantity) }}
{{- end }}
{{- mulf (float64 $number) (float64 (get $units $unit)) | int64 }}
{{- end }}

{{/* 80 % of a quantity, in bytes. */}}
{{- define "modelgateway.fourFifths" -}}
{{- div (mul (include "modelgateway.bytes" . | int64) 8) 10 }}
{{- end }}

{{/*
Replicas of the data plane. With autoscaling, the number of the running StatefulSet: without one, Kubernetes would set 1
and end all other replicas when autoscaling is enabled, and another number would override the autoscaler at every upgrade.
*/}}
{{- define "modelgateway.dataplaneReplicas" -}}
{{- $plane := .Values.dataplane }}
{{- if not $plane.autoscaling.enabled }}
{{- $plane.replicas }}
{{- else }}
{{- $running := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "modelgateway.componentName" (list . "dataplane")) }}
{{- $count := dig "spec" "replicas" $plane.autoscaling.minReplicas $running | int }}
{{- max $count (int $plane.autoscaling.minReplicas) }}
{{- end }}
{{- end }}

{{/*
Fails if the claims of the running StatefulSet have another size or class. Kubernetes would refuse the change, but only after
the migration, and the release would have failed.
*/}}
{{- define "modelgateway.requireSameClaim" -}}
{{- $running := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "modelgateway.componentName" (list . "dataplane")) }}
{{- range dig "spec" "volumeClaimTemplates" list $running }}
{{- range $value, $pair := dict
  "size" (list (dig "spec" "resources" "requests" "storage" "" .) $.Values.dataplane.spool.size)
  "storageClassName" (list (dig "spec" "storageClassName" "" .) $.Values.dataplane.spool.storageClassName) }}
{{- if ne (first $pair) (last $pair) }}
{{- fail (printf "dataplane.spool.%s is %q, but the StatefulSet has %q, which Kubernetes does not change: docs/operations/upgrade.md has the steps for a larger volume" $value (last $pair) (first $pair)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "modelgateway.scaleTarget" -}}
apiVersion: apps/v1
kind: StatefulSet
name: {{ include "modelgateway.componentName" (list . "dataplane") }}
{{- end }}

{{/* Takes dataplane.autoscaling. */}}
{{- define "modelgateway.requireTargets" -}}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
{{- fail (printf "dataplane.autoscaling.minReplicas is %d, more than maxReplicas, which is %d" (int .minReplicas) (int .maxReplicas)) }}
{{- end }}
{{- if not (or .targetCPUPercent .targetRequestsInFlight .targetSpoolPercent .extraMetrics) }}
{{- fail "dataplane.autoscaling has no target: set one of those for CPU, requests in flight and the spool, or extraMetrics" }}
{{- end }}
{{- end }}

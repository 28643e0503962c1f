{{/*
Parts of the pods of both planes. Helpers take (list $ "component"); the values of the
component are under its name.
*/}}

{{/* Pods have only the labels of their selectors. Release labels would restart every pod with each version of the chart. */}}
{{- define "modelgateway.podMetadata" -}}
{{- $root := first . }}
{{- $values := index $root.Values (last .) -}}
labels:
  {{- include "modelgateway.selectorLabels" . | nindent 2 }}
  {{- with merge (dict) $values.podLabels $root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/config: {{ include (printf "modelgateway.config.%s" (last .)) $root | sha256sum }}
  {{- with $values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Identity and placement of every pod, and its init containers. No program uses the Kubernetes API, so no token is mounted. Service links are disabled because they add environment variables. */}}
{{- define "modelgateway.podSpec" -}}
{{- $root := first . }}
{{- $values := index $root.Values (last .) -}}
{{- include "modelgateway.requireEnv" . -}}
serviceAccountName: {{ include "modelgateway.serviceAccountName" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- toYaml $root.Values.podSecurityContext | nindent 2 }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.extraPodSpec }}
{{ toYaml . }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.topologySpread }}
topologySpreadConstraints:
  {{- range . }}
  - {{ toYaml . | nindent 4 | trim }}
    labelSelector:
      matchLabels:
        {{- include "modelgateway.selectorLabels" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- with $values.extraInitContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Fails at a variable that the chart sets, or that is a setting. */}}
{{- define "modelgateway.requireEnv" -}}
{{- $component := last . }}
{{- range (index (first .).Values $component).extraEnv }}
{{- if hasPrefix "MGW_" .name }}
{{- fail (printf "%s.extraEnv has %s: a setting belongs into the config of its plane, a secret into a Secret named under secrets" $component .name) }}
{{- else if has .name (list "GOGC" "GOMEMLIMIT") }}
{{- fail (printf "%s.extraEnv has %s, which the chart sets: GOGC from dataplane.gogc, GOMEMLIMIT from resources.limits.memory" $component .name) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "modelgateway.containerBase" -}}
{{- $root := first . -}}
image: {{ include "modelgateway.image" . }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext:
  {{- toYaml $root.Values.containerSecurityContext | nindent 2 }}
{{- end }}

{{/* Probes of a container, on its ops port, and its preStop hook. */}}
{{- define "modelgateway.lifecycle" -}}
startupProbe:
  httpGet: {path: /livez, port: ops}
  {{- toYaml .probes.startup | nindent 2 }}
  {{- $period := int .probes.startup.periodSeconds }}
  failureThreshold: {{ div (sub (add (int .startupSeconds) $period) 1) $period }}
livenessProbe:
  httpGet: {path: /livez, port: ops}
  {{- toYaml .probes.liveness | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: ops}
  {{- toYaml .probes.readiness | nindent 2 }}
{{- if gt (int .preStopSeconds) 0 }}
lifecycle:
  preStop:
    sleep:
      seconds: {{ int .preStopSeconds }}
{{- end }}
{{- end }}

{{/* Volume of secrets, each a file of mode 0440 for the group of the pod. Takes the sources. */}}
{{- define "modelgateway.secretsVolume" -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- . | trim | nindent 6 }}
{{- end }}

{{/*
Annotations of an object that exists for the migration, so that it is created before the other objects of the release.
Takes (list $ order), where lower numbers come first.
*/}}
{{- define "modelgateway.hook" -}}
{{- $run := (first .).Values.migrate.run -}}
{{- if eq $run "helm" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ last . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- else if eq $run "argocd" -}}
argocd.argoproj.io/hook: PreSync
argocd.argoproj.io/sync-wave: {{ last . | quote }}
argocd.argoproj.io/hook-delete-policy: BeforeHookCreation,HookSucceeded
{{- end -}}
{{- end }}

{{/* The same for an object that is kept after it has succeeded. */}}
{{- define "modelgateway.keptHook" -}}
{{- include "modelgateway.hook" . | replace ",hook-succeeded" "" | replace ",HookSucceeded" "" }}
{{- end }}

{{/* The name of the migration's Job. Beside the planes it has the hash of what it runs, because the pod of a Job cannot be changed. */}}
{{- define "modelgateway.migrateJob" -}}
{{- $name := include "modelgateway.componentName" (list . "migrate") }}
{{- if eq .Values.migrate.run "beside" }}
{{- $name = printf "%s-%s" $name (list (include "modelgateway.image" (list . .Values.controlplane.image)) .Values | toJson | sha256sum | trunc 8) }}
{{- end }}
{{- $name }}
{{- end }}

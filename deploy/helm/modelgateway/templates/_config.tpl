{{/*
The configuration files and secrets of the programs. Every key here must be a setting of
the program, which refuses unknown keys.
*/}}

{{- define "modelgateway.configDir" -}}/etc/modelgateway/config{{- end }}
{{- define "modelgateway.secretsDir" -}}/etc/modelgateway/secrets{{- end }}
{{- define "modelgateway.spoolDir" -}}/var/lib/modelgateway/spool{{- end }}
{{- define "modelgateway.archiveDir" -}}/var/lib/modelgateway/archive{{- end }}

{{/* The nats section of a plane, with the paths of secretSources. Takes (list $ plane). */}}
{{- define "modelgateway.config.nats" -}}
{{- $root := first . }}
{{- $plane := last . }}
{{- $nats := $root.Values.nats }}
{{- $dir := include "modelgateway.secretsDir" $root }}
{{- if $nats.tls.enabled }}
{{- range splitList "," $nats.url }}
{{- if not (regexMatch "^(tls|wss)://" (trim .)) }}
{{- fail (printf "nats.url: %q must begin with tls:// or wss:// because nats.tls.enabled is true" (trim .)) }}
{{- end }}
{{- end }}
{{- end }}
url: {{ $nats.url | quote }}
{{- with $plane.nats.user }}
user: {{ . | quote }}
password_file: {{ $dir }}/nats-password
{{- end }}
{{- if $nats.tls.enabled }}
{{- if $nats.tls.caSecret.name }}
ca_file: {{ $dir }}/nats-ca.crt
{{- end }}
{{- if $nats.tls.clientSecret.name }}
cert_file: {{ $dir }}/nats-client.crt
key_file: {{ $dir }}/nats-client.key
{{- end }}
{{- end }}
{{- end }}

{{- define "modelgateway.config.tls" -}}
cert_file: {{ include "modelgateway.secretsDir" . }}/tls.crt
key_file: {{ include "modelgateway.secretsDir" . }}/tls.key
{{- end }}

{{/* The Secret with the certificate of a plane's listener. */}}
{{- define "modelgateway.secretSources.tls" -}}
{{- with .tls.secretName }}
- secret:
    name: {{ . }}
    items:
      - key: tls.crt
        path: tls.crt
      - key: tls.key
        path: tls.key
{{- end }}
{{- end }}

{{- define "modelgateway.config.controlplane" -}}
{{- $plane := .Values.controlplane }}
{{- $dir := include "modelgateway.secretsDir" . }}
{{- $nats := include "modelgateway.config.nats" (list . $plane) | fromYaml }}
{{- $admin := dict "listen" ":8081" }}
{{- if $plane.tls.secretName }}
{{- $_ := set $admin "tls" (include "modelgateway.config.tls" . | fromYaml) }}
{{- end }}
{{- if .Values.secrets.bootstrapToken.enabled }}
{{- $_ := set $admin "bootstrap_token_file" (printf "%s/bootstrap-token" $dir) }}
{{- end }}
{{- with $plane.oidc }}
{{- if .issuer }}
{{- if and (or (not .jwksSecret.name) $plane.console.oidc.clientID) (not (regexMatch "^(https://|http://(localhost|127[.][0-9.]+|\\[::1\\])(:|/|$))" .issuer)) }}
{{- fail (printf "controlplane.oidc.issuer is %s: the program fetches its keys with https:// only" .issuer) }}
{{- end }}
{{- $oidc := dict
  "issuer" .issuer
  "audience" (.audience | required "controlplane.oidc.audience is empty; it is required with controlplane.oidc.issuer")
  "claim" .claim
  "scope_mapping" .scopeMapping }}
{{- if .jwksSecret.name }}
{{- $_ := set $oidc "jwks_file" (printf "%s/oidc-keys.json" $dir) }}
{{- end }}
{{- $_ := set $admin "oidc" $oidc }}
{{- end }}
{{- end }}
{{- with .Values.nats.monitorURL }}
{{- $_ := set $nats "monitor_url" . }}
{{- end }}
{{- with .Values.nats.usage }}
{{- $_ := set $nats "usage_kept" (printf "%dh" (int .keptHours)) }}
{{- with .maxSize }}
{{- $_ := set $nats "usage_max_bytes" (include "modelgateway.bytes" . | int64) }}
{{- end }}
{{- end }}
{{- $secrets := dict
  "pepper_file" (printf "%s/pepper" $dir)
  "fleet_key_file" (printf "%s/fleet-key" $dir)
  "master_key_file" (printf "%s/master-key" $dir)
  "master_key_id" $plane.masterKeyID }}
{{- if .Values.secrets.previousPeppers.enabled }}
{{- $_ := set $secrets "previous_peppers_file" (printf "%s/previous-peppers" $dir) }}
{{- end }}
{{- if .Values.secrets.previousMasterKeys.enabled }}
{{- $_ := set $secrets "previous_master_keys_file" (printf "%s/previous-master-keys" $dir) }}
{{- end }}
{{- $page := $plane.console }}
{{- $console := dict
  "enabled" $page.enabled "environment" $page.environment "token_sign_in" $page.tokenSignIn
  "session_idle" $page.sessionIdle "session_length" $page.sessionLength }}
{{- include "modelgateway.config.bound" (list "controlplane.console.sessionIdle" "time.Duration" $page.sessionIdle) }}
{{- $idle := include "modelgateway.config.number" (list "time.Duration" $page.sessionIdle) | float64 }}
{{- if gt $idle (include "modelgateway.config.number" (list "time.Duration" $page.sessionLength) | float64) }}
{{- fail (printf "controlplane.console.sessionIdle is %s: longer than controlplane.console.sessionLength, %s" $page.sessionIdle $page.sessionLength) }}
{{- end }}
{{- with $page.baseURL }}
{{- $_ := set $console "base_url" . }}
{{- end }}
{{- with $page.apiURL }}
{{- $_ := set $console "api_url" . }}
{{- end }}
{{- with $page.oidc }}
{{- if .clientID }}
{{- if not $plane.oidc.issuer }}
{{- fail "controlplane.console.oidc.clientID needs controlplane.oidc.issuer: the console signs people in at that provider" }}
{{- end }}
{{- if not $page.baseURL }}
{{- fail "controlplane.console.oidc.clientID needs controlplane.console.baseURL: the provider sends people back to it" }}
{{- end }}
{{- $_ := set $console "oidc" (dict "client_id" .clientID "client_secret_file" (printf "%s/console-client-secret" $dir) "scopes" .scopes) }}
{{- end }}
{{- end }}
{{- $set := dict
  "admin" $admin
  "console" $console
  "ops" (dict "listen" ":9091")
  "postgres" (dict "url_file" (printf "%s/postgres-url" $dir) "max_connections" $plane.postgres.maxConnections
    "admin_max_connections" $plane.postgres.adminMaxConnections "keeps_commits" $plane.postgres.keepsCommits)
  "nats" (merge $nats (dict "replicas" .Values.nats.replicas))
  "secrets" $secrets
  "log" (dict "level" $plane.logLevel) }}
{{- with .Values.tracing.endpoint }}
{{- $_ := set $set "tracing" (dict "endpoint" .) }}
{{- end }}
{{- if and (dig "archive" "audit_retention_months" 0 $plane.config) (not $plane.archive.existingClaim) }}
{{- fail "controlplane.config.archive.audit_retention_months needs controlplane.archive.existingClaim: a month is archived before it is removed" }}
{{- end }}
{{- if $plane.archive.existingClaim }}
{{- $_ := set $set "archive" (dict "dir" (include "modelgateway.archiveDir" .)) }}
{{- end }}
{{- include "modelgateway.config" (dict "set" $set "more" $plane.config "plane" "controlplane") }}
{{- end }}

{{/* Fails if the budget for bodies is too small for the largest body, or does not fit into GOMEMLIMIT. Takes the data plane. */}}
{{- define "modelgateway.requireBodyBudget" -}}
{{- $least := 83886080 | int64 }}
{{- $limit := include "modelgateway.fourFifths" .resources.limits.memory | int64 }}
{{- $budget := max $least (div (mul $limit 4) 10) | int64 }}
{{- with .api.bodyBudget }}
{{- $budget = include "modelgateway.bytes" . | int64 }}
{{- if lt $budget $least }}
{{- fail "dataplane.api.bodyBudget is less than 80Mi, so that the largest body finds no room" }}
{{- end }}
{{- end }}
{{- if gt $budget $limit }}
{{- fail (printf "dataplane.resources.limits.memory is %v, of which bodies may take %d MiB: more than the 80 %% that the program may use" .resources.limits.memory (div $budget 1048576)) }}
{{- end }}
{{- end }}

{{- define "modelgateway.config.dataplane" -}}
{{- $plane := .Values.dataplane }}
{{- if hasKey $plane.config "name" }}
{{- fail "dataplane.config.name cannot be set: the name of a replica is that of its pod" }}
{{- end }}
{{- $dir := include "modelgateway.secretsDir" . }}
{{- $secrets := dict
  "pepper_file" (printf "%s/pepper" $dir)
  "fleet_key_file" (printf "%s/fleet-key" $dir) }}
{{- if .Values.secrets.previousPeppers.enabled }}
{{- $_ := set $secrets "previous_peppers_file" (printf "%s/previous-peppers" $dir) }}
{{- end }}
{{- if .Values.secrets.previousFleetKeys.enabled }}
{{- $_ := set $secrets "previous_fleet_keys_file" (printf "%s/previous-fleet-keys" $dir) }}
{{- end }}
{{- $api := dict "listen" ":8080" }}
{{- include "modelgateway.requireBodyBudget" $plane }}
{{- with $plane.api.bodyBudget }}
{{- $_ := set $api "body_budget" (include "modelgateway.bytes" . | int64) }}
{{- end }}
{{- if $plane.tls.secretName }}
{{- $_ := set $api "tls" (include "modelgateway.config.tls" . | fromYaml) }}
{{- end }}
{{- $tracing := dict "sample_ratio" .Values.tracing.sampleRatio "trust_clients" .Values.tracing.trustClients }}
{{- with .Values.tracing.endpoint }}
{{- $_ := set $tracing "endpoint" . }}
{{- end }}
{{- $spool := include "modelgateway.fourFifths" $plane.spool.size | int64 }}
{{- if lt $spool (1048576 | int64) }}
{{- fail (printf "dataplane.spool.size is %v, of which the program may use 80 %%: less than 1Mi" $plane.spool.size) }}
{{- end }}
{{- $set := dict
  "api" $api
  "tracing" $tracing
  "ops" (dict "listen" ":9090")
  "nats" (include "modelgateway.config.nats" (list . $plane) | fromYaml)
  "secrets" $secrets
  "spool" (dict
    "dir" (include "modelgateway.spoolDir" .)
    "max_bytes" $spool)
  "log" (dict "level" $plane.logLevel)
  "drain_timeout" (printf "%ds" (int $plane.drainTimeoutSeconds)) }}
{{- include "modelgateway.config" (dict "set" $set "more" $plane.config "plane" "dataplane") }}
{{- end }}

{{/* The settings of the chart merged with those of the user, which must not overlap. Takes a dict: set, more, plane. */}}
{{- define "modelgateway.config" -}}
{{- $known := include (printf "modelgateway.settings.%s" .plane) . | fromYaml }}
{{- include "modelgateway.config.refuse" (dict "set" .set "more" .more "known" $known "root" (printf "%s.config" .plane) "key" "") }}
{{- toYaml (merge .set (deepCopy .more)) }}
{{- end }}

{{/* Fails at a setting that is a secret, that the chart sets, that the program does not have or that has another type. */}}
{{- define "modelgateway.config.refuse" -}}
{{- range $name, $value := .more }}
{{- $key := printf "%s%s" $.key $name }}
{{- $path := printf "%s.%s" $.root $key }}
{{- $type := get $.known $key }}
{{- if eq $type "settings.Secret" }}
{{- fail (printf "%s is a secret: put it into a Secret and name that Secret under secrets" $path) }}
{{- end }}
{{- if not (or $type (include "modelgateway.config.isSection" (list $.known $key))) }}
{{- fail (printf "%s is not a setting of the %s; docs/settings.md lists them" $path (trimSuffix ".config" $.root)) }}
{{- end }}
{{- $set := dict }}
{{- if hasKey $.set $name }}
{{- $set = get $.set $name }}
{{- if not (and (kindIs "map" $set) (kindIs "map" $value)) }}
{{- fail (printf "%s is set by the chart from another value" $path) }}
{{- end }}
{{- end }}
{{- if $type }}
{{- if not (include "modelgateway.config.fits" (list $type $value)) }}
{{- fail (printf "%s is %v; the setting is a %s" $path $value $type) }}
{{- end }}
{{- include "modelgateway.config.bound" (list $path $type $value) }}
{{- include "modelgateway.config.pattern" (list $path $value) }}
{{- else if kindIs "map" $value }}
{{- include "modelgateway.config.refuse" (dict "set" $set "more" $value "known" $.known "root" $.root "key" (printf "%s." $key)) }}
{{- else }}
{{- fail (printf "%s is %v; it is a section of settings" $path $value) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The least and the most that the programs start with. The tests of the chart ask the programs and compare. */}}
{{- define "modelgateway.config.bounds" -}}
controlplane.config.archive.audit_retention_months: ["0"]
controlplane.config.archive.usage_retention_months: ["0"]
controlplane.config.postgres.statement_timeout: [1s]
controlplane.config.session.window: [1s, 5m]
controlplane.config.webhook.disable_after: [1h]
controlplane.config.webhook.timeout: [1ns, 45s]
controlplane.console.sessionIdle: [1m]
dataplane.config.api.body_timeout: [1ns]
dataplane.config.api.max_connections: ["1"]
dataplane.config.api.min_rate: ["1"]
dataplane.config.lease.outage_target: [0s, 24h]
dataplane.config.spool.max_events: ["100"]
{{- end }}

{{/* What a text that is not empty must look like for the programs to start. */}}
{{- define "modelgateway.config.patterns" -}}
{{- $octet := "(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])" }}
{{- $network := printf "(%s([.]%s){3}/(3[0-2]|[12]?[0-9])|[0-9a-fA-F]*:[0-9a-fA-F:.]*/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))" $octet $octet }}
{{- $networks := dict "like" "networks such as 10.0.0.0/8, separated by commas" "pattern" (printf "^[, ]*(%s([, ]+|$))*$" $network) }}
{{- dict
  "controlplane.config.admin.trusted_proxies" $networks
  "controlplane.config.webhook.allowed_networks" $networks
  "dataplane.config.api.trusted_proxies" $networks
  "controlplane.config.admin.bootstrap_expires_at" (dict "like" "a time such as 2026-01-31T12:00:00Z"
    "pattern" "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3])(:[0-5][0-9]){2}([.][0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$")
  | toYaml }}
{{- end }}

{{/* Fails at a text that is not what the program expects. Takes (list path value). */}}
{{- define "modelgateway.config.pattern" -}}
{{- $value := last . }}
{{- with get (include "modelgateway.config.patterns" . | fromYaml) (first .) }}
{{- if and $value (not (regexMatch .pattern $value)) }}
{{- fail (printf "%s is %q, which is not %s" (first $) $value .like) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Fails at a setting beyond its bounds. Takes (list path type value). */}}
{{- define "modelgateway.config.bound" -}}
{{- $path := index . 0 }}
{{- $type := index . 1 }}
{{- $value := include "modelgateway.config.number" (list $type (index . 2)) | float64 }}
{{- range $i, $bound := get (include "modelgateway.config.bounds" . | fromYaml) $path | default list }}
{{- $number := include "modelgateway.config.number" (list $type $bound) | float64 }}
{{- if and (eq $i 0) (lt $value $number) }}
{{- fail (printf "%s is %v; the least is %s" $path (index $ 2) $bound) }}
{{- else if and (eq $i 1) (gt $value $number) }}
{{- fail (printf "%s is %v; the most is %s" $path (index $ 2) $bound) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The number of a setting, in seconds if it is a duration. Takes (list type value). */}}
{{- define "modelgateway.config.number" -}}
{{- if eq (first .) "time.Duration" }}
{{- $zero := toDate "2006-01-02" "2000-01-01" }}
{{- (($zero | mustDateModify (last .)).Sub $zero).Seconds }}
{{- else }}
{{- last . }}
{{- end }}
{{- end }}

{{/* Takes (list known key). Not empty if the key is a section of settings. */}}
{{- define "modelgateway.config.isSection" -}}
{{- range $name, $_ := first . }}
{{- if hasPrefix (printf "%s." (last $)) $name }}yes{{ end }}
{{- end }}
{{- end }}

{{/* Takes (list type value). Not empty if the program reads the value as the type. */}}
{{- define "modelgateway.config.fits" -}}
{{- $type := first . }}
{{- $value := last . }}
{{- $isNumber := or (kindIs "float64" $value) (kindIs "int64" $value) (kindIs "int" $value) }}
{{- if eq $type "time.Duration" }}
{{- if and (kindIs "string" $value) (regexMatch "^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$" $value) }}yes{{ end }}
{{- else if or (eq $type "int") (eq $type "int64") }}
{{- if $isNumber }}{{ if eq (floor $value) (float64 $value) }}yes{{ end }}{{ end }}
{{- else if eq $type "float64" }}
{{- if $isNumber }}yes{{ end }}
{{- else if eq $type "bool" }}
{{- if kindIs "bool" $value }}yes{{ end }}
{{- else if kindIs "string" $value }}yes{{ end }}
{{- end }}

{{/* Sources of a projected volume: one file of one Secret. Takes (list $ entry-of-secrets file). */}}
{{- define "modelgateway.secretSource" -}}
{{- $root := index . 0 }}
{{- $entry := index . 1 -}}
- secret:
    name: {{ $entry.existingSecret | default $root.Values.secrets.existingSecret | required "secrets.existingSecret is empty, and so is an entry's own" }}
    items:
      - key: {{ $entry.key }}
        path: {{ index . 2 }}
{{- end }}

{{- define "modelgateway.secretSources.nats" -}}
{{- $root := index . 0 }}
{{- $tls := $root.Values.nats.tls }}
{{- if (index . 1).nats.user }}
{{ include "modelgateway.secretSource" (list $root (index . 2) "nats-password") }}
{{- end }}
{{- if and $tls.enabled $tls.caSecret.name }}
- secret:
    name: {{ $tls.caSecret.name }}
    items:
      - key: {{ $tls.caSecret.key }}
        path: nats-ca.crt
{{- end }}
{{- if and $tls.enabled $tls.clientSecret.name }}
- secret:
    name: {{ $tls.clientSecret.name }}
    items:
      - key: tls.crt
        path: nats-client.crt
      - key: tls.key
        path: nats-client.key
{{- end }}
{{- end }}

{{/* The Secrets of the migration: the connection string of the owner, if there is one of its own. */}}
{{- define "modelgateway.secretSources.migrate" -}}
{{- if ne (empty .Values.postgres.runtimeRole) (not .Values.secrets.migrationPostgresURL.enabled) }}
{{- fail "postgres.runtimeRole and secrets.migrationPostgresURL.enabled belong together: the owner of the tables migrates and grants, the runtime role serves" }}
{{- end }}
{{- if .Values.secrets.migrationPostgresURL.enabled }}
{{- include "modelgateway.secretSource" (list . .Values.secrets.migrationPostgresURL "postgres-url") }}
{{- else }}
{{- include "modelgateway.secretSource" (list . .Values.secrets.postgresURL "postgres-url") }}
{{- end }}
{{- include "modelgateway.secretSources.postgresTLS" . }}
{{- end }}

{{- define "modelgateway.secretSources.postgres" -}}
{{- include "modelgateway.secretSource" (list . .Values.secrets.postgresURL "postgres-url") }}
{{- include "modelgateway.secretSources.postgresTLS" . }}
{{- end }}

{{- define "modelgateway.secretSources.postgresTLS" -}}
{{- with .Values.postgres.caSecret }}
{{- if .name }}
- secret:
    name: {{ .name }}
    items:
      - key: {{ .key }}
        path: postgres-ca.crt
{{- end }}
{{- end }}
{{- with .Values.postgres.clientSecret.name }}
- secret:
    name: {{ . }}
    items:
      - key: tls.crt
        path: postgres-client.crt
      - key: tls.key
        path: postgres-client.key
{{- end }}
{{- end }}

{{/* TLS settings for Postgres as variables. The connection string takes precedence, so the Secret of a database operator can be used unchanged. */}}
{{- define "modelgateway.postgresEnv" -}}
{{- $dir := include "modelgateway.secretsDir" . }}
{{- with .Values.postgres }}
- name: PGSSLMODE
  value: {{ .sslMode }}
{{- if .caSecret.name }}
- name: PGSSLROOTCERT
  value: {{ $dir }}/postgres-ca.crt
{{- end }}
{{- if .clientSecret.name }}
- name: PGSSLCERT
  value: {{ $dir }}/postgres-client.crt
- name: PGSSLKEY
  value: {{ $dir }}/postgres-client.key
{{- end }}
{{- end }}
{{- end }}

{{- define "modelgateway.secretSources.controlplane" -}}
{{ include "modelgateway.secretSources.postgres" . }}
{{- include "modelgateway.secretSources.nats" (list . .Values.controlplane .Values.secrets.controlplaneNATSPassword) }}
{{ include "modelgateway.secretSource" (list . .Values.secrets.pepper "pepper") }}
{{- if .Values.secrets.previousPeppers.enabled }}
{{ include "modelgateway.secretSource" (list . .Values.secrets.previousPeppers "previous-peppers") }}
{{- end }}
{{ include "modelgateway.secretSource" (list . .Values.secrets.fleetKey "fleet-key") }}
{{ include "modelgateway.secretSource" (list . .Values.secrets.masterKey "master-key") }}
{{- if .Values.secrets.previousMasterKeys.enabled }}
{{ include "modelgateway.secretSource" (list . .Values.secrets.previousMasterKeys "previous-master-keys") }}
{{- end }}
{{- if .Values.secrets.bootstrapToken.enabled }}
{{ include "modelgateway.secretSource" (list . .Values.secrets.bootstrapToken "bootstrap-token") }}
{{- end }}
{{- if .Values.controlplane.console.oidc.clientID }}
{{ include "modelgateway.secretSource" (list . .Values.secrets.consoleClientSecret "console-client-secret") }}
{{- end }}
{{- include "modelgateway.secretSources.tls" .Values.controlplane }}
{{- with .Values.controlplane.oidc }}
{{- if and .issuer .jwksSecret.name }}
- secret:
    name: {{ .jwksSecret.name }}
    items:
      - key: {{ .jwksSecret.key }}
        path: oidc-keys.json
{{- end }}
{{- end }}
{{- end }}

{{- define "modelgateway.secretSources.dataplane" -}}
{{- include "modelgateway.secretSources.nats" (list . .Values.dataplane .Values.secrets.dataplaneNATSPassword) | trim }}
{{ include "modelgateway.secretSource" (list . .Values.secrets.pepper "pepper") }}
{{- if .Values.secrets.previousPeppers.enabled }}
{{ include "modelgateway.secretSource" (list . .Values.secrets.previousPeppers "previous-peppers") }}
{{- end }}
{{ include "modelgateway.secretSource" (list . .Values.secrets.fleetKey "fleet-key") }}
{{- if .Values.secrets.previousFleetKeys.enabled }}
{{ include "modelgateway.secretSource" (list . .Values.secrets.previousFleetKeys "previous-fleet-keys") }}
{{- end }}
{{- include "modelgateway.secretSources.tls" .Values.dataplane }}
{{- end }}

{{/* The keys of Secrets that the pods mount, as a JSON list of {name, key}. */}}
{{- define "modelgateway.secretKeys" -}}
{{- $sources := concat
  (include "modelgateway.secretSources.controlplane" . | fromYamlArray)
  (include "modelgateway.secretSources.dataplane" . | fromYamlArray) }}
{{- if .Values.migrate.enabled }}
{{- $sources = concat (include "modelgateway.secretSources.migrate" . | fromYamlArray) $sources }}
{{- end }}
{{- $keys := list }}
{{- range $sources }}
{{- $name := .secret.name }}
{{- range .secret.items }}
{{- $keys = append $keys (dict "name" $name "key" .key) }}
{{- end }}
{{- end }}
{{- uniq $keys | toJson }}
{{- end }}

{{/*
Fails with the names of all keys of Secrets that are missing. Otherwise the migration waits for them and the install ends
with a timeout. Every namespace has the service account "default", so without it nothing is known about the cluster: helm
template does not ask it, and a namespace that the install creates does not exist yet.
*/}}
{{- define "modelgateway.requireSecrets" -}}
{{- if lookup "v1" "ServiceAccount" .Release.Namespace "default" }}
{{- $missing := list }}
{{- range fromJsonArray (include "modelgateway.secretKeys" .) }}
{{- $secret := lookup "v1" "Secret" $.Release.Namespace .name }}
{{- if not (hasKey ($secret.data | default dict) .key) }}
{{- $missing = append $missing (printf "%s: %s" .name .key) }}
{{- end }}
{{- end }}
{{- if $missing }}
{{- fail (printf "the namespace %s lacks these keys of Secrets, which the README of the chart describes:\n  %s" .Release.Namespace (join "\n  " $missing)) }}
{{- end }}
{{- end }}
{{- end }}

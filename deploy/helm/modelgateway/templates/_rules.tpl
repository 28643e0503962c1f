{{- /* The labels of the samples of this release, as matchers: name="value",name="value". With the chart's ServiceMonitors they are the namespace
and the release. prometheusRule.selector adds to them; an empty value removes one. */}}
{{- define "modelgateway.sampleMatchers" -}}
{{- $selector := dict }}
{{- if .Values.serviceMonitor.enabled }}
{{- $selector = dict "namespace" .Release.Namespace "app_kubernetes_io_instance" .Release.Name }}
{{- end }}
{{- $selector = merge (deepCopy .Values.prometheusRule.selector) $selector }}
{{- $matchers := list }}
{{- range $name, $value := $selector }}
{{- if $value }}{{ $matchers = append $matchers (printf "%s=%q" $name $value) }}{{ end }}
{{- end }}
{{- join "," $matchers }}
{{- end }}

{{- /* The groups of rules: those of files/rules/alerts.yaml without the disabled ones, with the thresholds of the values, for the samples of this
release only. */}}
{{- define "modelgateway.rules" -}}
{{- $file := .Files.Get "files/rules/alerts.yaml" | fromYaml }}
{{- $known := .Files.Get "files/rules/thresholds.yaml" | fromYaml }}
{{- $matchers := include "modelgateway.sampleMatchers" . }}
{{- $with := .Values.prometheusRule }}
{{- $names := list }}
{{- range $file.groups }}{{ range .rules }}{{ $names = append $names .alert }}{{ end }}{{ end }}
{{- range $with.disabled }}
{{- if not (has . $names) }}{{ fail (printf "prometheusRule.disabled: there is no alert %s" .) }}{{ end }}
{{- end }}
{{- range $alert, $thresholds := $with.thresholds }}
{{- $of := get $known $alert | default dict }}
{{- range $name, $value := $thresholds }}
{{- if not (hasKey $of $name) }}
{{- fail (printf "prometheusRule.thresholds.%s.%s: not one of the thresholds of this alert, which are [%s]" $alert $name (keys $of | sortAlpha | join ", ")) }}
{{- end }}
{{- end }}
{{- end }}
{{- $groups := list }}
{{- range $group := $file.groups }}
{{- $rules := list }}
{{- range $rule := $group.rules }}
{{- if not (has $rule.alert $with.disabled) }}
{{- $expr := $rule.expr }}
{{- range $name, $value := get $with.thresholds $rule.alert | default dict }}
{{- $old := get (get $known $rule.alert) $name }}
{{- $new := printf "%s %s" (splitList " " $old | first) (toString $value) }}
{{- $expr = regexReplaceAll (printf "%s\\b" (regexQuoteMeta $old)) $expr $new }}
{{- end }}
{{- with $matchers }}
{{- $expr = regexReplaceAll "\\b(mgw_[a-z0-9_]+|up)\\b(\\{|\\[|[ )])" $expr (printf "${1}{%s}${2}" .) }}
{{- $expr = regexReplaceAll "\\b(mgw_[a-z0-9_]+)$" $expr (printf "${1}{%s}" .) }}
{{- $expr = replace "}{" "," $expr }}
{{- end }}
{{- $_ := set $rule "expr" $expr }}
{{- with $with.runbookURL }}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s/%s.md" (trimSuffix "/" .) $rule.alert) }}
{{- end }}
{{- $rules = append $rules $rule }}
{{- end }}
{{- end }}
{{- if $rules }}{{ $groups = append $groups (dict "name" $group.name "rules" $rules) }}{{ end }}
{{- end }}
{{- dict "groups" $groups | toYaml }}
{{- end }}

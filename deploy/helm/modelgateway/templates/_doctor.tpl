{{/*
Container and volumes of a pod that runs the command doctor of the control plane. Takes a dict: root, component, args, values
(with resources, extraEnv and so on) and config, the component of the ConfigMap if it is not the same. A missing Secret does not stop the pod: the
program names it.
*/}}
{{- define "modelgateway.doctor" -}}
{{- $root := .root }}
{{- $values := .values -}}
containers:
  - name: {{ .component }}
    {{- include "modelgateway.containerBase" (list $root $root.Values.controlplane.image) | nindent 4 }}
    args:
      - doctor
      - --config={{ include "modelgateway.configDir" $root }}/config.yaml
      {{- toYaml .args | nindent 6 }}
    {{- with concat (include "modelgateway.postgresEnv" $root | fromYamlArray) $values.extraEnv }}
    env:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    resources:
      {{- toYaml $root.Values.migrate.resources | nindent 6 }}
    volumeMounts:
      - name: config
        mountPath: {{ include "modelgateway.configDir" $root }}
        readOnly: true
      - name: secrets
        mountPath: {{ include "modelgateway.secretsDir" $root }}
        readOnly: true
      {{- with $values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: config
    configMap:
      name: {{ include "modelgateway.componentName" (list $root (.config | default .component)) }}
  {{- $sources := list }}
  {{- range include "modelgateway.secretSources.controlplane" $root | fromYamlArray }}
  {{- $sources = append $sources (dict "secret" (merge (dict "optional" true) .secret)) }}
  {{- end }}
  {{- include "modelgateway.secretsVolume" (toYaml $sources) | nindent 2 }}
  {{- with $values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

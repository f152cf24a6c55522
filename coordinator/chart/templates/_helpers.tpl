{{- define "baremetal.image" -}}
{{- $address := trimSuffix "/" .Values.global.registry.address -}}
{{- $name := ternary (printf "%s/%s" $address .Values.image.repository) .Values.image.repository (ne $address "") -}}
{{- if .Values.image.digest -}}
{{ $name }}@{{ .Values.image.digest }}
{{- else -}}
{{ $name }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "baremetal.host" -}}
{{- regexReplaceAll ":[0-9]+$" (trimSuffix "/" (trimPrefix "https://" .Values.serverURL)) "" -}}
{{- end -}}

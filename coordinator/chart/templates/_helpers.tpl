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

{{- define "baremetal.checkScope" -}}
{{- if and .Values.watch.namespaces .Values.watch.allNamespaces -}}
{{- fail "watch.namespaces and watch.allNamespaces exclude each other: leave one out" -}}
{{- else if not (or .Values.watch.namespaces .Values.watch.allNamespaces) -}}
{{- fail "the coordinator can read each Secret whose name it knows in the namespaces that it watches: name them in watch.namespaces, or write watch.allNamespaces=true" -}}
{{- end -}}
{{- end -}}

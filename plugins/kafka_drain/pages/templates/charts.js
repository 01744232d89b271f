{% include "frame.js" %}
{{ vendored("uPlot.iife.min.js") }}
{% include "draw.js" %}

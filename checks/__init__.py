"""Static checks of what is deployed: numbers, names, templates, package. They read files only and change nothing."""

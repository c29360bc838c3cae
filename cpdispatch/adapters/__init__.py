"""The package inside other people's systems."""
